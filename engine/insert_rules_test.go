package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// In every kind of transaction inserts by a policy or in a window take effect with it, and leave it
// usable, whatever they say.
func TestTxInsertsByRules(t *testing.T) {
	onEachHost(t, rarely, func(t *testing.T, e *engine.Engine, pool *pgxpool.Pool, begin func(...sql.IsolationLevel) hostTx) {
		old := ticket.New("old").Key("k").After(time.Hour)
		id, err := e.Insert(t.Context(), old)
		require.NoError(t, err)
		live := func() int {
			return number(t, pool, `SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable'`)
		}

		for _, commit := range []bool{false, true} {
			tx := begin()
			got, err := tx.Insert(t.Context(), ticket.New("replaced").Key("k").OnConflict(fsm.ConflictReplace).After(time.Hour))
			require.NoError(t, err)
			require.Equal(t, id, got)
			once := echoes.New("once").Throttle("w", time.Hour)
			first, err := tx.Insert(t.Context(), once)
			require.NoError(t, err)
			_, err = tx.Insert(t.Context(), once)
			require.ErrorIs(t, err, engine.ErrThrottled)
			taken, ok := errors.AsType[*engine.ThrottledError](err)
			require.True(t, ok)
			require.Equal(t, engine.ThrottledError{Key: "w", First: first, Until: taken.Until}, *taken)
			require.ErrorContains(t, err, `was inserted for "w", whose window`)
			late := echoes.New("late").Debounce("w", time.Hour, 2*time.Hour).Label("a", "b").PartitionKey("p")
			done, err := tx.InsertMany(t.Context(), []fsm.Spec{late, late, echoes.New("plain")})
			require.NoError(t, err)
			require.Equal(t, engine.Inserted{ID: done[0].ID, Replaced: true}, done[1])
			if commit {
				require.NoError(t, tx.commit())
			} else {
				require.NoError(t, tx.rollback())
				require.Equal(t, 1, live())
				require.Zero(t, number(t, pool, `SELECT count(*) FROM gendurable.windows`))
			}
		}
		require.Equal(t, 4, live())
		i, err := ticket.Get(t.Context(), e, id)
		require.NoError(t, err)
		require.Equal(t, "replaced", i.State)

		waited := make(chan error, 1)
		go func() {
			_, err := ticket.Wait(t.Context(), e, id)
			waited <- err
		}()
		tx := begin()
		newest, err := tx.Insert(t.Context(), ticket.New("newest").Key("k").OnConflict(fsm.ConflictNewest).After(time.Hour))
		require.NoError(t, err)
		require.NotEqual(t, id, newest)
		require.NoError(t, tx.commit())
		tx.Nudge()
		failed, ok := errors.AsType[*fsm.FailedError](<-waited)
		require.True(t, ok)
		require.Equal(t, fsm.FailureCancelled, failed.Failure)
	})
}

// The newest instance of a key ends the step of the one before, and runs.
func TestTheNewestInstanceEndsTheStepBefore(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan error, 1)
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	e := working(t, pool, rarely, func(c *engine.Config) {
		c.Machines = append(c.Machines, booking.Define(
			fsm.Step("start", func(ctx context.Context, v *bookingVisit) (fsm.Outcome, error) {
				if v.State == 1 {
					return v.Done("newest"), nil
				}
				close(began)
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}).To("end"), fsm.Step("end", func(_ context.Context, v *bookingVisit) (fsm.Outcome, error) { return v.Done(""), nil })))
	})
	first, err := e.Insert(t.Context(), booking.New(0).Key("k"))
	require.NoError(t, err)
	<-began
	waited := make(chan error, 1)
	go func() {
		_, err := booking.Wait(within(t), e, first)
		waited <- err
	}()
	got, err := e.GetOrInsert(t.Context(), booking.New(0).Key("k").OnConflict(fsm.ConflictReplace))
	require.NoError(t, err)
	require.Equal(t, engine.Inserted{ID: first, Duplicate: true}, got, "what has begun is not replaced")
	second, err := e.Insert(t.Context(), booking.New(1).Key("k").OnConflict(fsm.ConflictNewest))
	require.NoError(t, err)
	require.ErrorIs(t, <-ended, fsm.ErrCancelled)
	require.Error(t, <-waited)
	result, err := booking.Wait(within(t), e, second)
	require.NoError(t, err)
	require.Equal(t, "newest", result)
}

// In its own transaction a step does not cancel its own instance: the outcome decides.
func TestInTxSparesItsOwnInstance(t *testing.T) {
	t.Parallel()
	e, _ := books(t, func(ctx context.Context, tx pgx.Tx, v *bookingVisit) (fsm.Outcome, error) {
		_, err := engine.FromContext(ctx).WithPgx(tx).Insert(ctx, booking.New(1).Key("k").OnConflict(fsm.ConflictNewest))
		if taken, ok := errors.AsType[*engine.DuplicateError](err); !ok || taken.Occupant != v.ID {
			return nil, errors.New("not its own duplicate")
		}
		return v.Done("itself"), nil
	})
	id, err := e.Insert(t.Context(), booking.New(0).Key("k"))
	require.NoError(t, err)
	got, err := booking.Wait(within(t), e, id)
	require.NoError(t, err)
	require.Equal(t, "itself", got)
}

// A signal with start takes neither a policy nor a window.
func TestSignalOrInsertTakesNoRules(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	for field, spec := range map[string]fsm.Spec{
		"conflict": ticket.New("a").Key("k").OnConflict(fsm.ConflictNewest), "window": ticket.New("a").Key("k").OncePer("w", time.Hour),
	} {
		_, err := e.SignalOrInsert(t.Context(), spec, paid.With(1))
		wrong, ok := errors.AsType[*engine.InsertError](err)
		require.True(t, ok, err)
		require.Equal(t, field, wrong.Field)
	}
	require.Zero(t, number(t, pool, `SELECT count(*) FROM gendurable.gen_durable`))
}
