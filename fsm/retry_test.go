package fsm_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

func TestRetryDelays(t *testing.T) {
	t.Parallel()
	const unlimited = fsm.Unlimited
	for name, c := range map[string]struct {
		policy  fsm.RetryPolicy
		attempt int
		middle  time.Duration
	}{
		"first":             {fsm.RetryPolicy{}, 0, time.Second},
		"second":            {fsm.RetryPolicy{}, 1, 2 * time.Second},
		"below the cap":     {fsm.RetryPolicy{}, 8, 256 * time.Second},
		"capped":            {fsm.RetryPolicy{}, 9, 5 * time.Minute},
		"last":              {fsm.RetryPolicy{}, 18, 5 * time.Minute},
		"no overflow at 34": {fsm.RetryPolicy{MaxAttempts: unlimited}, 34, 5 * time.Minute},
		"no overflow at 62": {fsm.RetryPolicy{MaxAttempts: unlimited}, 62, 5 * time.Minute},
		"no overflow at 64": {fsm.RetryPolicy{MaxAttempts: unlimited}, 64, 5 * time.Minute},
		"no overflow ever":  {fsm.RetryPolicy{MaxAttempts: unlimited}, math.MaxInt32, 5 * time.Minute},
		"base":              {fsm.RetryPolicy{Base: 3 * time.Millisecond}, 3, 24 * time.Millisecond},
		"max":               {fsm.RetryPolicy{Max: 10 * time.Second}, 5, 10 * time.Second},
		"base over 5 min":   {fsm.RetryPolicy{Base: time.Hour}, 0, time.Hour},
		"base capped":       {fsm.RetryPolicy{Base: time.Hour}, 1, time.Hour},
		"base is max":       {fsm.RetryPolicy{Base: time.Minute, Max: time.Minute}, 4, time.Minute},
		"longest":           {fsm.RetryPolicy{Base: fsm.MaxDelay / 2, Max: fsm.MaxDelay / 2}, 7, fsm.MaxDelay / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := two(failing).Retry(c.policy)
			at := claim(`{}`)
			at.Attempt = c.attempt
			lowest, highest := time.Duration(math.MaxInt64), time.Duration(0)
			for range 1000 {
				got := handle(t, d, at, errBroken)
				require.Equal(t, step.Retry, got.Kind)
				lowest, highest = min(lowest, got.Delay), max(highest, got.Delay)
			}
			require.GreaterOrEqual(t, lowest, c.middle/10*8)
			require.LessOrEqual(t, highest, c.middle/10*12)
			// Some of a thousand delays lie in the outer quarters, or the range is not ± 20 %.
			require.Less(t, lowest, c.middle/10*9)
			require.Greater(t, highest, c.middle/10*11)
		})
	}
}

func TestRetryDecisions(t *testing.T) {
	t.Parallel()
	fixed := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	perAttempt := fsm.RetryPolicy{Delay: func(n int) time.Duration { return time.Duration(n) * time.Hour }}
	for name, c := range map[string]struct {
		policy  fsm.RetryPolicy
		attempt int // the run's number is one more
		err     error
		delay   time.Duration
		failure fsm.Failure
	}{
		"run 19 of 20":          {fsm.RetryPolicy{Delay: fixed(1)}, 18, errBroken, 1, ""},
		"run 20 of 20":          {fsm.RetryPolicy{Delay: fixed(1)}, 19, errBroken, 0, fsm.FailureExhausted},
		"beyond, by crashes":    {fsm.RetryPolicy{Delay: fixed(1)}, 25, errBroken, 0, fsm.FailureExhausted},
		"only run":              {fsm.RetryPolicy{MaxAttempts: 1}, 0, errBroken, 0, fsm.FailureExhausted},
		"unlimited":             {fsm.RetryPolicy{MaxAttempts: fsm.Unlimited, Delay: fixed(1)}, 1e6, errBroken, 1, ""},
		"own delay":             {perAttempt, 3, errBroken, 3 * time.Hour, ""},
		"own delay of 0":        {perAttempt, 0, errBroken, 0, ""},
		"permanent":             {fsm.RetryPolicy{}, 0, fsm.Permanent(errBroken), 0, fsm.FailureError},
		"permanent, wrapped":    {fsm.RetryPolicy{}, 0, fmt.Errorf("broken%w", fsm.Permanent(fmt.Errorf(""))), 0, fsm.FailureError},
		"permanent, last run":   {fsm.RetryPolicy{MaxAttempts: 1}, 0, fsm.Permanent(errBroken), 0, fsm.FailureError},
		"permanent outranks":    {fsm.RetryPolicy{}, 0, fsm.RetryAfter(time.Hour, fsm.Permanent(errBroken)), 0, fsm.FailureError},
		"retry after":           {fsm.RetryPolicy{Delay: fixed(1)}, 0, fsm.RetryAfter(time.Hour, errBroken), time.Hour, ""},
		"retry after over max":  {fsm.RetryPolicy{Max: time.Second}, 0, fsm.RetryAfter(time.Hour, errBroken), time.Hour, ""},
		"retry after the past":  {fsm.RetryPolicy{}, 0, fsm.RetryAfter(-time.Hour, errBroken), 0, ""},
		"retry after, counted":  {fsm.RetryPolicy{MaxAttempts: 2}, 1, fsm.RetryAfter(time.Hour, errBroken), 0, fsm.FailureExhausted},
		"retry after, outer":    {fsm.RetryPolicy{}, 0, fsm.RetryAfter(1, fsm.RetryAfter(2, errBroken)), 1, ""},
		"retry after, wrapped":  {fsm.RetryPolicy{}, 0, fmt.Errorf("broken%w", fsm.RetryAfter(5, fmt.Errorf(""))), 5, ""},
		"longest delay allowed": {fsm.RetryPolicy{Delay: fixed(fsm.MaxDelay)}, 0, errBroken, fsm.MaxDelay, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := claim(`{"id":1,"unknown":true}`)
			at.Attempt = c.attempt
			ready := handle(t, two(failing).Retry(c.policy), at, c.err)
			custom := handle(t, two(failing).OnError(func(_ context.Context, v *cartVisit, err error) (fsm.Outcome, error) {
				return v.RetryBy(c.policy, err), nil
			}), at, c.err)
			want := step.Commit{Kind: step.Retry, State: at.State, Delay: c.delay, Err: "broken"}
			if c.failure != "" {
				want = step.Commit{Kind: step.Fail, Err: "broken", Failure: string(c.failure)}
			}
			require.Equal(t, want, *ready, "the ready-made handler keeps the stored state, to the byte")
			if c.failure == "" {
				want.State = []byte(`{"id":1}`) // the custom handler stores its own
			}
			require.Equal(t, want, *custom)
		})
	}
}

// What an outcome has wrong by itself, no retry cures: not the retries of a policy, which would
// take weeks to say so.
func TestFaultsOfTheProgramAreNotRetried(t *testing.T) {
	t.Parallel()
	_, wrong := run(t, func(v *cartVisit) fsm.Outcome { return v.Next("nowhere", v.State) })
	require.ErrorAs(t, wrong, new(*fsm.OutcomeError))
	refused := &fsm.OutcomeError{Field: "commit", Err: errBroken} // by Postgres, e.g. a trigger
	shared := &fsm.BatchError{Size: 2, Err: wrong}
	for err, want := range map[error]fsm.Failure{
		wrong: fsm.FailureError, fmt.Errorf("step: %w", wrong): fsm.FailureError, fsm.RetryAfter(time.Hour, wrong): fsm.FailureError,
		refused: "", shared: "",
	} {
		for _, d := range []fsm.Definition{
			two(failing).Retry(fsm.RetryPolicy{}), cartMachine.Job(length),
			two(failing).OnError(func(_ context.Context, v *cartVisit, err error) (fsm.Outcome, error) {
				return v.RetryBy(fsm.RetryPolicy{}, err), nil
			}),
		} {
			require.Equal(t, string(want), handle(t, d, claim(`{}`), err).Failure, "%v", err)
		}
	}
}

// A delay of just the maximum must stay within it also after ± 20 %, else the outcome would be
// refused.
func TestRetryDelayAtTheLimit(t *testing.T) {
	t.Parallel()
	d := two(failing).Retry(fsm.RetryPolicy{Base: fsm.MaxDelay})
	for range 100 {
		require.LessOrEqual(t, handle(t, d, claim(`{}`), errBroken).Delay, fsm.MaxDelay)
	}
}

func TestRetryDelayOutOfRange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy fsm.RetryPolicy
		err    error
	}{
		"negative":               {fsm.RetryPolicy{Delay: func(int) time.Duration { return -1 }}, errBroken},
		"over 100 y":             {fsm.RetryPolicy{Delay: func(int) time.Duration { return fsm.MaxDelay + 1 }}, errBroken},
		"retry after over 100 y": {fsm.RetryPolicy{}, fsm.RetryAfter(math.MaxInt64, errBroken)},
	} {
		_, err := hidden.Machine(two(failing).Retry(c.policy)).OnError(t.Context(), claim(`{}`), c.err)
		var bad *fsm.OutcomeError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, "delay", bad.Field, name)
	}
}

func TestJobRetries(t *testing.T) {
	t.Parallel()
	job := cartMachine.Job(length)
	at := claim(`{}`)
	require.Equal(t, step.Retry, handle(t, job, at, errBroken).Kind)
	at.Attempt = 19
	require.Equal(t, "exhausted", handle(t, job, at, errBroken).Failure)
	require.Equal(t, "decided", handle(t, cartMachine.Job(length).OnError(giveUp), at, errBroken).Failure)
}

func TestSteeringErrors(t *testing.T) {
	t.Parallel()
	require.NoError(t, fsm.Permanent(nil))
	require.NoError(t, fsm.RetryAfter(time.Second, nil))
	require.EqualError(t, fsm.Permanent(errBroken), "broken")
	require.EqualError(t, fsm.RetryAfter(1, errBroken), "broken")
	require.ErrorIs(t, fsm.Permanent(errBroken), errBroken)
	require.ErrorIs(t, fsm.RetryAfter(1, errBroken), errBroken)
}
