package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// diary is what the functions around a commit did, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.lines...)
}

// around notes both of its parts, and whether the second one runs after a commit.
func (d *diary) around(name string) func(context.Context, func(context.Context) error) error {
	return func(ctx context.Context, commit func(context.Context) error) error {
		d.note("before " + name)
		if err := commit(ctx); err != nil {
			d.note("undone " + name)
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		d.note("after " + name)
		return nil
	}
}

var errAround = errors.New("the function around the commit refuses")

// T222: the functions around a commit write before it, and learn after it whether it was made.
func TestAroundCommit(t *testing.T) {
	t.Parallel()
	type visit = bookingVisit
	for name, c := range map[string]struct {
		own    func(ctx context.Context, d *diary, tx pgx.Tx, v *visit) error
		want   []string
		booked int
		status fsm.Status
		logs   string
	}{
		"committed": {func(_ context.Context, d *diary, tx pgx.Tx, v *visit) error {
			engine.AroundCommit(tx, d.around("a"))
			engine.AroundCommit(tx, func(ctx context.Context, commit func(context.Context) error) error {
				return errors.Join(book(ctx, tx, v, "by b"), d.around("b")(ctx, commit))
			})
			return nil
		}, []string{"before a", "before b", "after b", "after a"}, 2, fsm.StatusDone, ""},
		"the function fails": {func(_ context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, d.around("a"))
			return errAround
		}, nil, 0, fsm.StatusFailed, ""},
		"a first part fails": {func(_ context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, d.around("a"))
			engine.AroundCommit(tx, func(context.Context, func(context.Context) error) error { return errAround })
			engine.AroundCommit(tx, d.around("c"))
			return nil
		}, []string{"before a", "undone a"}, 0, fsm.StatusFailed, ""},
		"a first part panics": {func(_ context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, d.around("a"))
			engine.AroundCommit(tx, func(context.Context, func(context.Context) error) error {
				panic("alarm") //nolint:forbidigo // what a host may do
			})
			return nil
		}, []string{"before a", "undone a"}, 0, fsm.StatusFailed, ""},
		"a first part does not commit": {func(_ context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, d.around("a"))
			engine.AroundCommit(tx, func(context.Context, func(context.Context) error) error { return nil })
			return nil
		}, []string{"before a", "undone a"}, 0, fsm.StatusFailed, ""},
		"Postgres refuses what a first part writes": {func(_ context.Context, d *diary, tx pgx.Tx, v *visit) error {
			engine.AroundCommit(tx, func(ctx context.Context, commit func(context.Context) error) error {
				return errors.Join(book(ctx, tx, v, "x"), book(ctx, tx, v, "x"), d.around("a")(ctx, commit))
			})
			return nil
		}, []string{"before a", "undone a"}, 0, fsm.StatusFailed, ""},
		"a second part fails": {func(_ context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, d.around("a"))
			engine.AroundCommit(tx, func(ctx context.Context, commit func(context.Context) error) error {
				return errors.Join(commit(ctx), errAround)
			})
			return nil
		}, []string{"before a", "after a"}, 1, fsm.StatusDone, errAround.Error()},
		"a second part panics": {func(_ context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, func(ctx context.Context, commit func(context.Context) error) error {
				_ = d.around("a")(ctx, commit)
				panic("alarm") //nolint:forbidigo // what a host may do
			})
			return nil
		}, []string{"before a", "after a"}, 1, fsm.StatusDone, "alarm"},
		"it commits twice": {func(_ context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, func(ctx context.Context, commit func(context.Context) error) error {
				if err := commit(ctx); err != nil {
					return err
				}
				return d.around("a")(ctx, commit)
			})
			return nil
		}, []string{"before a", "undone a"}, 1, fsm.StatusDone, "called commit twice"},
		"savepoints": {func(ctx context.Context, d *diary, tx pgx.Tx, _ *visit) error {
			engine.AroundCommit(tx, d.around("a"))
			for _, commit := range []bool{true, false} {
				outer, err := tx.Begin(ctx)
				if err != nil {
					return err
				}
				inner, err := outer.Begin(ctx)
				if err != nil {
					return err
				}
				engine.AroundCommit(inner, d.around(map[bool]string{true: "b", false: "c"}[commit]))
				if err := inner.Commit(ctx); err != nil {
					return err
				}
				if commit {
					err = outer.Commit(ctx)
					_ = outer.Rollback(ctx) // as pgx.BeginFunc does
				} else {
					err = outer.Rollback(ctx)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}, []string{"before a", "before b", "after b", "after a"}, 1, fsm.StatusDone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, logged := &diary{}, &journal{}
			e, pool := books(t, func(ctx context.Context, tx pgx.Tx, v *visit) (fsm.Outcome, error) {
				if err := book(ctx, tx, v, "x of the function"); err != nil {
					return nil, err
				}
				return v.Done("done"), c.own(ctx, d, tx, v)
			}, func(config *engine.Config) { config.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
			id, err := e.Insert(t.Context(), booking.New(0))
			require.NoError(t, err)
			_, err = booking.Wait(within(t), e, id)
			require.Equal(t, c.status == fsm.StatusDone, err == nil, "%v", err)
			require.NoError(t, e.Stop(context.Background())) // after which the second parts have run
			require.Equal(t, c.want, d.all())
			require.Equal(t, c.booked, number(t, pool, `SELECT count(*) FROM booked`))
			require.Contains(t, logged.String(), c.logs)
			require.Equal(t, c.logs != "", strings.Contains(logged.String(), "a function around its commit failed"), logged.String())
		})
	}
}

// A step that runs again after a conflict has its functions around the commit called again, and
// only the run that commits tells its functions of a commit. Its timeout does not end their context
// once the function has returned.
func TestAroundCommitOfAStepThatRunsAgain(t *testing.T) {
	t.Parallel()
	d := &diary{}
	runs := 0 // one flight at a time
	first := func(_ context.Context, v *bookingVisit) (fsm.Outcome, error) {
		return engine.InTx(func(_ context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			runs++
			engine.AroundCommit(tx, d.around("a"))
			engine.AroundCommit(tx, func(ctx context.Context, commit func(context.Context) error) error {
				if runs == 1 {
					return &pgconn.PgError{Code: "40001"}
				}
				return commit(ctx)
			})
			return v.Done("done"), nil
		}), nil
	}
	e, _ := books(t, nil, func(c *engine.Config) {
		c.Machines = []fsm.Definition{booking.Define(fsm.Step("start", first).Timeout(time.Minute))}
	})
	id, err := e.Insert(t.Context(), booking.New(0))
	require.NoError(t, err)
	_, err = booking.Wait(within(t), e, id)
	require.NoError(t, err)
	require.NoError(t, e.Stop(context.Background()))
	require.Equal(t, []string{"before a", "undone a", "before a", "after a"}, d.all())
}

// A step that has been cancelled meanwhile commits nothing, and no function is told of a commit.
func TestAroundCommitOfAStaleOutcome(t *testing.T) {
	t.Parallel()
	d, called := &diary{}, make(chan fsm.ID)
	e, pool := books(t, func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
		engine.AroundCommit(tx, d.around("a"))
		called <- v.ID
		<-ctx.Done()
		return v.Done("done"), book(context.WithoutCancel(ctx), tx, v, "x")
	})
	id, err := e.Insert(t.Context(), booking.New(0))
	require.NoError(t, err)
	require.Equal(t, id, <-called)
	_, err = e.Admin().Cancel(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, e.Stop(context.Background()))
	require.Zero(t, number(t, pool, `SELECT count(*) FROM booked`))
	require.NotContains(t, d.all(), "after a")
}

// Only a step has its commit made by the engine.
func TestAroundCommitOfAHostsTransaction(t *testing.T) {
	t.Parallel()
	_, pool := client(t, line)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it wrote nothing
	require.False(t, engine.AroundCommit(tx, (&diary{}).around("a")))
	require.False(t, engine.AroundCommit(nil, (&diary{}).around("a")))
}
