package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/tier"
)

type counter struct{ N int }

func TestAJobRunsToItsResult(t *testing.T) {
	t.Parallel()
	double := fsm.Declare[counter, int]("double")
	eng := start(t, config(t, double.Job(func(_ context.Context, c counter) (int, error) { return 2 * c.N, nil })))
	ids := make([]fsm.ID, 0, 100)
	for n := range 100 {
		id, err := eng.Insert(t.Context(), double.New(counter{n}))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	for n, id := range ids {
		got := result(t, eng, double, id)
		require.Equal(t, 2*n, got)
	}
}

func TestNextRunsAheadAndCommitsEveryStep(t *testing.T) {
	t.Parallel()
	count := fsm.Declare[counter, int]("count")
	def := count.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
		if v.State.N == 250 {
			return v.Done(v.State.N), nil
		}
		return v.Next("start", counter{v.State.N + 1}), nil
	}))
	eng := start(t, config(t, def))
	id, err := eng.Insert(t.Context(), count.New(counter{}))
	require.NoError(t, err)
	got := result(t, eng, count, id)
	require.Equal(t, 250, got)
	i, err := eng.Get(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 250, i.Visit)
}

func TestASignalWakesAParkedInstance(t *testing.T) {
	t.Parallel()
	paid := fsm.DeclareSignal[int]("paid")
	order := fsm.Declare[counter, int]("order")
	def := order.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
			return v.Await("ship", v.State, paid).Timeout(time.Hour), nil
		}),
		fsm.Step("ship", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
			cents, ok, err := paid.First(v)
			if err != nil || !ok {
				return nil, errors.Join(err, errors.New("woken without a payment"))
			}
			return v.Done(cents), nil
		}))
	eng := start(t, config(t, def))
	id, err := eng.Insert(t.Context(), order.New(counter{}).Key("order:1"))
	require.NoError(t, err)
	eventuallyStatus(t, eng, id, fsm.StatusAwaitingSignal)
	d, err := eng.Signal(t.Context(), fsm.Key("order:1"), paid.With(4200).DedupKey("evt"))
	require.NoError(t, err)
	require.Equal(t, id, d.To)
	got := result(t, eng, order, id)
	require.Equal(t, 4200, got)
	_, err = eng.Signal(t.Context(), fsm.Key("order:1"), paid.With(1))
	require.ErrorIs(t, err, engine.ErrNoTarget)
}

func TestAnAwaitTimesOut(t *testing.T) {
	t.Parallel()
	never := fsm.DeclareSignal[int]("never")
	m := fsm.Declare[counter, string]("patient")
	def := m.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, string]) (fsm.Outcome, error) {
			return v.Await("end", v.State, never).Timeout(50 * time.Millisecond), nil
		}),
		fsm.Step("end", func(_ context.Context, v *fsm.Visit[counter, string]) (fsm.Outcome, error) {
			return v.Done(fmt.Sprint(v.TimedOut(), len(v.Awaited()))), nil
		}))
	eng := start(t, config(t, def))
	id, err := eng.Insert(t.Context(), m.New(counter{}))
	require.NoError(t, err)
	got := result(t, eng, m, id)
	require.Equal(t, "true 0", got)
}

func TestChildrenJoinOnceAllHaveEnded(t *testing.T) {
	t.Parallel()
	leaf := fsm.Declare[counter, int]("leaf")
	tree := fsm.Declare[counter, int]("tree")
	defs := []fsm.Definition{
		leaf.Job(func(_ context.Context, c counter) (int, error) {
			if c.N == 13 {
				return 0, fsm.Permanent(errors.New("unlucky"))
			}
			return c.N, nil
		}),
		tree.Define(
			fsm.Step("start", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
				var specs []fsm.Spec
				for n := range v.State.N {
					specs = append(specs, leaf.New(counter{n}))
				}
				return v.ScheduleChildren("join", v.State, specs...), nil
			}),
			fsm.Step("join", func(_ context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
				sum := 0
				for _, c := range leaf.Children(v) {
					n, err := c.Result()
					if _, failed := errors.AsType[*fsm.FailedError](err); failed {
						n = 1000
					} else if err != nil {
						return nil, err
					}
					sum += n
				}
				return v.Done(sum), nil
			})),
	}
	eng := start(t, config(t, defs...))
	for _, n := range []int{0, 1, 50, 300} {
		id, err := eng.Insert(t.Context(), tree.New(counter{n}))
		require.NoError(t, err)
		got := result(t, eng, tree, id)
		want := n * (n - 1) / 2
		if n > 13 {
			want += 1000 - 13
		}
		require.Equal(t, want, got)
	}
}

func TestAPartitionKeyRunsOneAtATimeInOrder(t *testing.T) {
	t.Parallel()
	var running, overlaps, order atomic.Int64
	m := fsm.Declare[counter, int]("serial")
	eng := start(t, config(t, m.Job(func(_ context.Context, c counter) (int, error) {
		if running.Add(1) > 1 {
			overlaps.Add(1)
		}
		defer running.Add(-1)
		if !order.CompareAndSwap(int64(c.N), int64(c.N+1)) {
			return 0, fsm.Permanent(fmt.Errorf("%d ran when it was %d's turn", c.N, order.Load()))
		}
		return c.N, nil
	})))
	specs := make([]fsm.Spec, tier.Pick(60, 200))
	for n := range specs {
		specs[n] = m.New(counter{n}).PartitionKey("k")
	}
	in, err := eng.InsertMany(t.Context(), specs)
	require.NoError(t, err)
	for _, i := range in {
		_, err := m.Wait(t.Context(), eng, i.ID)
		require.NoError(t, err)
	}
	require.Zero(t, overlaps.Load())
}
