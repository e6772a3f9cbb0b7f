package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
)

const (
	testPatience = 2 * steady.Patience
	testGlance   = 5 * time.Millisecond
)

// A client has no worker that could tell it: it looks.
func TestWaitInAnotherProcess(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Migrated(t))
	c := open(t, pool)
	id, err := c.Insert(t.Context(), ticket.New("A1").Key("seat"))
	require.NoError(t, err)
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 50)
	ctx := within(t)
	for n := range cap(answers) {
		go func() {
			target := fsm.Target(id)
			if n%2 > 0 {
				target = fsm.Key("seat")
			}
			text, err := ticket.Wait(ctx, c, target)
			answers <- answer{text, err}
		}()
	}
	worker := working(t, pool, rarely, func(c *engine.Config) { c.Queues["default"] = engine.Queue{} })
	parked(t, worker, id)
	_, err = c.Signal(t.Context(), id, paid.With(1))
	require.NoError(t, err)
	for range cap(answers) {
		got := <-answers
		// Half of them wait by key: one that only came after the end finds it free.
		if !errors.Is(got.err, engine.ErrNotFound) {
			require.Equal(t, answer{"A1 paid", nil}, got)
		}
	}
}

func TestWaitForAFailure(t *testing.T) {
	t.Parallel()
	fails := fsm.Declare[string, string]("fails")
	e := working(t, pgtest.Pool(t, pgtest.Migrated(t)), rarely, func(c *engine.Config) {
		c.Machines = append(c.Machines, fails.Job(func(context.Context, string) (string, error) {
			return "", fsm.Permanent(errors.New("out of paper"))
		}))
	})
	id, err := e.Insert(t.Context(), fails.New(""))
	require.NoError(t, err)
	_, err = fails.Wait(within(t), e, id)
	failed, ok := errors.AsType[*fsm.FailedError](err)
	require.True(t, ok, err)
	require.Equal(t, fsm.FailureError, failed.Failure)
	require.Contains(t, failed.Message, "out of paper")
	raw, err := e.Wait(t.Context(), id)
	require.NoError(t, err, "untyped, a failure is an end like any other")
	require.Equal(t, fsm.StatusFailed, raw.Status)
}

func TestWaitForWhatIsCollectedMeanwhile(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	id, err := e.Insert(t.Context(), echoes.New("x"))
	require.NoError(t, err)
	ended := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := e.Wait(ctx, id)
		ended <- err
	}()
	_, err = pool.Exec(t.Context(), `DELETE FROM gendurable.gen_durable WHERE id = $1`, id)
	require.NoError(t, err)
	require.ErrorIs(t, <-ended, engine.ErrNotFound)
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	id, err := e.Insert(t.Context(), echoes.New("x"))
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = e.Wait(ctx, id)
	require.ErrorIs(t, err, context.DeadlineExceeded, "with its context")

	ended := make(chan error, 1)
	go func() {
		_, err := e.Wait(t.Context(), id)
		ended <- err
	}()
	require.NoError(t, e.Stop(t.Context()))
	require.ErrorIs(t, <-ended, engine.ErrStopped, "with the engine, though it was never started")
}

func TestReadsOfNobody(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	for _, nobody := range []fsm.Target{nil, fsm.ID(0), fsm.ID(1 << 40), fsm.Key(""), fsm.Key("nobody's"), fsm.Key("\xff")} {
		_, err := e.Get(t.Context(), nobody)
		require.ErrorIs(t, err, engine.ErrNotFound, "%v", nobody)
		_, err = e.Wait(t.Context(), nobody)
		require.ErrorIs(t, err, engine.ErrNotFound, "%v", nobody)
	}
}

func TestEntQueries(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	id, err := e.Insert(t.Context(), echoes.New("hello").Key("k"))
	require.NoError(t, err)
	_, err = e.Signal(t.Context(), id, paid.With(7))
	require.NoError(t, err)

	row, err := e.Ent().Instance.Query().Where(instance.Machine(echoes.Name()), instance.StatusEQ(fsm.StatusRunnable)).Only(t.Context())
	require.NoError(t, err)
	require.Equal(t, id, row.ID)
	state, err := echoes.DecodeState(e.Codec(), row.State)
	require.NoError(t, err)
	require.Equal(t, "hello", state)

	tx, err := e.Ent().Tx(t.Context())
	require.NoError(t, err)
	n, err := tx.Signal.Query().Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, tx.Rollback())
}
