package fsm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// An error of Again is an outcome, whichever function returns it and however it is wrapped. No
// handler sees it, and no policy counts it.
func TestAgainIsNoFailure(t *testing.T) {
	t.Parallel()
	want := &step.Commit{Kind: step.Again, Delay: time.Minute}
	again := func(context.Context, *cartVisit) (fsm.Outcome, error) {
		return nil, fmt.Errorf("not yet: %w", fsm.Again(time.Minute))
	}
	got, err := runClaim(t, two(again), claim(`{}`))
	require.NoError(t, err)
	require.Equal(t, want, got)

	job := hidden.Machine(fsm.Declare[cart, string]("job").Job(func(context.Context, cart) (string, error) { return "", fsm.Again(time.Minute) }))
	got, err = job.Steps["start"].Run(t.Context(), claim(`{}`))
	require.NoError(t, err)
	require.Equal(t, want, got)

	handler := two(again).OnError(func(context.Context, *cartVisit, error) (fsm.Outcome, error) { return nil, fsm.Again(time.Minute) })
	got, err = hidden.Machine(handler).OnError(t.Context(), claim(`{}`), errBroken)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestAgainBounds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{-time.Second: 0, 0: 0, time.Hour: time.Hour, fsm.MaxDelay + 1: fsm.MaxDelay} {
		got, ok := hidden.Snoozed(fsm.Again(d))
		require.True(t, ok)
		require.Equal(t, want, got, "a moment that has passed is now")
	}
	_, ok := hidden.Snoozed(errBroken)
	require.False(t, ok)
	_, ok = hidden.Snoozed(nil)
	require.False(t, ok)
	require.EqualError(t, fsm.Again(time.Minute), "to be run again after 1m0s")
	for _, delay := range []time.Duration{-1, fsm.MaxDelay + 1} {
		_, err := runClaim(t, two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return v.Again(delay), nil }), claim(`{}`))
		fault, ok := errors.AsType[*fsm.OutcomeError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, "delay", fault.Field)
	}
}

// A job waits for its turn without using up its attempts.
func ExampleAgain() {
	open := false
	job := hidden.Machine(fsm.Declare[string, fsm.None]("call").Job(func(context.Context, string) (fsm.None, error) {
		if !open {
			return fsm.None{}, fsm.Again(time.Hour)
		}
		return fsm.None{}, nil
	}))

	out, err := job.Steps["start"].Run(context.Background(), &step.Claim{Step: "start", State: []byte(`"x"`)})
	fmt.Println(out.Kind, out.Delay, err)
	// Output: again 1h0m0s <nil>
}
