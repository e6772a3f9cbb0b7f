package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	e, _ := client(t)
	ctx := within(t)
	none, err := e.Counts(ctx, engine.CountsOptions{MaxAge: time.Nanosecond})
	require.NoError(t, err)
	require.True(t, none.Complete)
	require.Empty(t, none.Counts)

	var ids []fsm.ID
	for range 3 {
		id, err := e.Insert(ctx, ticket.New(""))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	_, err = e.Insert(ctx, echoes.New("").Queue("aside"))
	require.NoError(t, err)
	_, err = e.Admin().Cancel(ctx, ids[0])
	require.NoError(t, err)
	kept, err := e.Counts(ctx, engine.CountsOptions{})
	require.NoError(t, err)
	require.Equal(t, none, kept, "not ten seconds old")

	before := time.Now()
	counts, err := e.Counts(ctx, engine.CountsOptions{MaxAge: time.Nanosecond})
	require.NoError(t, err)
	require.Equal(t, []engine.Count{
		{Machine: "echo", Version: 1, Step: "start", Queue: "aside", Status: fsm.StatusRunnable, Count: 1},
		{Machine: "ticket", Version: 1, Step: "start", Queue: "default", Status: fsm.StatusRunnable, Count: 2},
		{Machine: "ticket", Version: 1, Step: "start", Queue: "default", Status: fsm.StatusFailed, Count: 1},
	}, counts.Counts)
	require.False(t, counts.At.Before(before))
	require.Positive(t, counts.Took)
}

// A scan that takes too long is cut off: the last counts are returned, and say so; before there are
// any, it is an error. Either way the next scan does not follow at once.
func TestCountsInTime(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	slow, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = slow.Exec(ctx, `LOCK TABLE gendurable.gen_durable IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	hasty := engine.CountsOptions{MaxAge: time.Hour, Timeout: 50 * time.Millisecond}
	_, err = e.Counts(ctx, hasty)
	require.ErrorIs(t, err, engine.ErrCounts)
	require.NoError(t, slow.Rollback(ctx))
	_, err = e.Counts(ctx, hasty)
	require.ErrorIs(t, err, engine.ErrCounts, "tried within the hour")

	_, err = e.Insert(ctx, ticket.New(""))
	require.NoError(t, err)
	first, err := e.Counts(ctx, engine.CountsOptions{MaxAge: time.Nanosecond})
	require.NoError(t, err)
	require.True(t, first.Complete)
	slow, err = pool.Begin(ctx)
	require.NoError(t, err)
	_, err = slow.Exec(ctx, `LOCK TABLE gendurable.gen_durable IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	hasty.MaxAge = time.Nanosecond
	second, err := e.Counts(ctx, hasty)
	require.NoError(t, err)
	require.False(t, second.Complete)
	second.Complete = true
	require.Equal(t, first, second)
	require.NoError(t, slow.Rollback(ctx))
	third, err := e.Counts(ctx, hasty)
	require.NoError(t, err)
	require.True(t, third.Complete)
	require.True(t, third.At.After(first.At))
}

// One scan serves all that ask meanwhile; it ends with the last of them, not with the one that
// began it.
func TestCountsTogether(t *testing.T) {
	t.Parallel()
	e, pool := client(t)
	ctx := within(t)
	slow, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer slow.Rollback(context.Background()) //nolint:errcheck // it may have ended
	_, err = slow.Exec(ctx, `LOCK TABLE gendurable.gen_durable IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	waiting := func(n int) {
		require.Eventually(t, func() bool {
			return number(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%GROUP BY g.fsm%'
				AND wait_event_type = 'Lock'`) == n
		}, testPatience, testGlance)
	}
	ask := func(ctx context.Context) <-chan error {
		out := make(chan error, 1)
		go func() {
			_, err := e.Counts(ctx, engine.CountsOptions{})
			out <- err
		}()
		return out
	}
	impatient, cancel := context.WithCancelCause(ctx)
	first := ask(impatient)
	waiting(1)
	var others sync.WaitGroup
	for range 20 {
		others.Go(func() {
			counts, err := e.Counts(ctx, engine.CountsOptions{MaxAge: time.Nanosecond})
			if err != nil || !counts.Complete {
				t.Errorf("%v, %v", counts, err)
			}
		})
	}
	bored := errors.New("bored")
	cancel(bored)
	require.ErrorIs(t, <-first, bored)
	waiting(1)
	require.NoError(t, slow.Rollback(ctx))
	others.Wait()

	slow, err = pool.Begin(ctx)
	require.NoError(t, err)
	_, err = slow.Exec(ctx, `LOCK TABLE gendurable.gen_durable IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	impatient, cancel = context.WithCancelCause(ctx)
	alone := make(chan error, 1)
	go func() {
		_, err := e.Counts(impatient, engine.CountsOptions{MaxAge: time.Nanosecond})
		alone <- err
	}()
	waiting(1)
	cancel(bored)
	require.ErrorIs(t, <-alone, bored)
	waiting(0)
	require.NoError(t, slow.Rollback(ctx))
	_, err = e.Counts(ctx, engine.CountsOptions{MaxAge: time.Nanosecond})
	require.NoError(t, err)
}

func TestCountsRefusesBadInput(t *testing.T) {
	t.Parallel()
	e := open(t, nowhere(t, 4))
	for text, o := range map[string]engine.CountsOptions{
		"MaxAge: -1s is negative":          {MaxAge: -time.Second},
		"Timeout: 1ns, want 1ms to 10m0s":  {Timeout: 1},
		"Timeout: -1s, want 1ms to 10m0s":  {Timeout: -time.Second},
		"Timeout: 1h0m0s, want 1ms to 10m": {Timeout: time.Hour},
	} {
		_, err := e.Counts(t.Context(), o)
		require.ErrorAs(t, err, new(*engine.QueryError))
		require.ErrorContains(t, err, text)
	}
	_, err := e.Counts(t.Context(), engine.CountsOptions{})
	require.Error(t, err)
	require.NotErrorIs(t, err, engine.ErrCounts, "a database that is not there is another matter")
}
