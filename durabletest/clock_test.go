package durabletest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// soon is what the tests below wait for by Advance, and pause is how long they dawdle.
const (
	soon  = 4 * time.Second
	pause = 2500 * time.Millisecond
)

var (
	dawdler = fsm.Declare[string, string]("dawdler")
	pushed  = fsm.DeclareSignal[string]("pushed")
)

// dawdling is a machine whose first step takes as long as a busy machine may take.
func dawdling(t *testing.T) fsm.Definition {
	return dawdler.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			dawdle(t)
			if v.State == "awaits" {
				return v.Await("end", v.State, pushed).Timeout(soon), nil
			}
			return v.Next("end", v.State).After(soon), nil
		}).To("end"),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Done(v.State), nil
		}).To(),
	)
}

// dawdle takes real time, which is to count for nothing.
func dawdle(t *testing.T) {
	t.Helper()
	<-time.After(pause)
}

// However long a test and its steps take, nothing becomes due by itself, and all of it becomes due
// by an Advance of exactly its time.
func TestOnlyAdvanceLetsTimePass(t *testing.T) {
	t.Parallel()
	kit := newKit(t, dawdling(t), parcels)
	delayed := insert(t, kit, parcel.New("delayed").After(soon))
	once := func() bool {
		_, err := kit.Engine.Insert(t.Context(), parcel.New("now and then").Throttle(fsm.Key("once"), soon))
		if !errors.Is(err, engine.ErrThrottled) {
			require.NoError(t, err)
		}
		return err == nil
	}
	require.True(t, once())
	retries := insert(t, kit, dawdler.New("retries"))
	awaits := insert(t, kit, dawdler.New("awaits"))
	durabletest.RequireDrain(t, kit) // the second step begins when all is long due by the real clock
	mortal := insert(t, kit, parcel.New("mortal").After(time.Hour).Deadline(soon))
	durabletest.RequireDrain(t, kit)
	dawdle(t)
	require.False(t, once(), "the window is still open")
	dawdle(t)
	require.Zero(t, durabletest.RequireDrain(t, kit).Steps)
	durabletest.RequireStatus(t, kit, delayed, fsm.StatusRunnable)
	durabletest.RequireStatus(t, kit, retries, fsm.StatusRunnable)
	durabletest.RequireStatus(t, kit, mortal, fsm.StatusRunnable)
	durabletest.RequireParked(t, kit, awaits)

	d := durabletest.RequireAdvance(t, kit, soon)
	require.Equal(t, 3, d.Steps, "%v", d.Ran)
	durabletest.RequireDone(t, kit, parcel, delayed)
	durabletest.RequireDone(t, kit, dawdler, retries)
	durabletest.RequireDone(t, kit, dawdler, awaits)
	durabletest.RequireFailed(t, kit, mortal, fsm.FailureDeadline, "")
	require.True(t, once())
}
