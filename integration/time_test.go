package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

func TestADelayedNextIsADurableTimer(t *testing.T) {
	t.Parallel()
	const wait = 400 * time.Millisecond
	m := fsm.Declare[time.Time, time.Duration]("timer")
	def := m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[time.Time, time.Duration]) (fsm.Outcome, error) {
			return v.Next("ring", time.Now()).After(wait), nil
		}),
		fsm.Step("ring", func(_ context.Context, v *fsm.Visit[time.Time, time.Duration]) (fsm.Outcome, error) {
			return v.Done(time.Since(v.State)), nil
		}))
	eng := start(t, config(t, def))
	got := result(t, eng, m, insert(t, eng, m.New(time.Time{})))
	require.GreaterOrEqual(t, got, wait)
}

// The engine that set the timer has stopped when it is due.
func TestATimerOutlivesItsEngine(t *testing.T) {
	t.Parallel()
	m := fsm.Declare[int, int]("timer")
	def := m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
			return v.Next("ring", 1).After(time.Second), nil
		}),
		fsm.Step("ring", func(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) { return v.Done(7), nil }))
	c := config(t, def)
	first, err := engine.New(c)
	require.NoError(t, err)
	require.NoError(t, first.Start(t.Context()))
	id := insert(t, first, m.New(0))
	eventually(t, func() bool { return get(t, first, id).Visit == 1 })
	require.NoError(t, stop(first))
	allDone(t, start(t, c), id)
}

func TestInsertsAreDelayedAndOrderedByPriority(t *testing.T) {
	t.Parallel()
	ran := make(chan string, 10)
	m := fsm.Declare[string, int]("named")
	c := narrow(config(t, m.Job(func(_ context.Context, name string) (int, error) {
		ran <- name
		return 0, nil
	})))
	eng, err := engine.New(c)
	require.NoError(t, err)
	// They are inserted before the start, so that a pick finds all of them.
	ids := insertAll(t, eng, []fsm.Spec{
		m.New("third").Priority(5), m.New("last").Priority(-9).After(time.Hour), m.New("fourth").Priority(5),
		m.New("first").Priority(-1), m.New("second").At(time.Unix(0, 0)),
	})
	require.NoError(t, eng.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, stop(eng)) })
	allDone(t, eng, ids[0], ids[2], ids[3], ids[4])
	require.Equal(t, fsm.StatusRunnable, get(t, eng, ids[1]).Status)
	_, err = eng.Admin().Reschedule(t.Context(), ids[1], time.Now())
	require.NoError(t, err)
	allDone(t, eng, ids[1])
	close(ran)
	var order []string
	for name := range ran {
		order = append(order, name)
	}
	require.Equal(t, []string{"first", "second", "third", "fourth", "last"}, order)
}

func TestAnAwaitTimesOutWithWhatHasArrived(t *testing.T) {
	t.Parallel()
	vote := fsm.DeclareSignal[int]("vote")
	m := fsm.Declare[time.Time, string]("poll")
	def := m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[time.Time, string]) (fsm.Outcome, error) {
			return v.Next("collect", time.Now().Add(time.Second)), nil
		}),
		fsm.Step("collect", func(_ context.Context, v *fsm.Visit[time.Time, string]) (fsm.Outcome, error) {
			if !v.TimedOut() {
				return v.Await("collect", v.State, vote).Until(v.State), nil
			}
			votes, err := vote.All(v)
			return v.Done(fmt.Sprint(votes)), err
		}))
	eng := start(t, config(t, def))
	id := insert(t, eng, m.New(time.Time{}))
	for n := range 3 {
		_, err := eng.Signal(t.Context(), id, vote.With(n))
		require.NoError(t, err)
	}
	got := result(t, eng, m, id)
	require.Equal(t, "[0 1 2]", got)
}
