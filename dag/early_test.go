package dag_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// patience bounds how long a test waits, pause is how often it looks.
const (
	patience = time.Minute
	pause    = 10 * time.Millisecond
)

var (
	review  = fsm.Declare[string, []string]("review")
	opinion = fsm.Declare[string, string]("review.opinion")
	vote    = fsm.DeclareSignal[bool]("vote")
	people  = []string{"ada", "bob", "cy", "dee", "eve"}
)

// approval asks five people, and is there with the second who agrees. Nodes behind the value, and
// nodes that report that it cannot be, stand beside it.
func approval() []fsm.Definition {
	g := dag.New(review).CancelRest()
	var asked []dag.Value[string]
	for _, who := range people {
		name := dag.Do(g, "name "+who, dag.In(g), func(context.Context, string) (string, error) { return who, nil })
		asked = append(asked, dag.Call(g, who, name, opinion, dag.With(func(s fsm.Spec) fsm.Spec {
			return s.Key(fsm.Key("opinion:" + s.State().(string)))
		})))
	}
	enough := dag.Do(g, "enough", dag.Quorum(2, asked...), func(_ context.Context, by []string) ([]string, error) { return by, nil })
	dag.Do(g, "refused", dag.Failed(enough), func(_ context.Context, why error) (string, error) { return why.Error(), nil })
	return append(g.Return(enough), opinion.Define(
		fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Await("cast", v.State, vote), nil
		}).To("cast"),
		fsm.Step("cast", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			agrees, said, err := vote.First(v)
			switch {
			case err != nil:
				return nil, err
			case !said: // it runs again
				return v.Await("cast", v.State, vote), nil
			case !agrees:
				return v.Fail(errors.New("does not agree")), nil
			}
			return v.Done(v.State), nil
		}).To("cast")))
}

// reviewing is a review that waits for its people.
func reviewing(t *testing.T) (kit *durabletest.Kit, id fsm.ID, say func(who string, agrees bool)) {
	t.Helper()
	kit = durabletest.New(t, durabletest.Config{Machines: approval()})
	id, err := kit.Engine.Insert(t.Context(), review.New("paper"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	return kit, id, func(who string, agrees bool) {
		t.Helper()
		_, err := kit.Engine.Signal(t.Context(), fsm.Key("opinion:"+who), vote.With(agrees))
		require.NoError(t, err)
		_, err = kit.Drain(t.Context())
		require.NoError(t, err)
	}
}

// live counts the instances that have not ended.
func live(t *testing.T, kit *durabletest.Kit) (n int) {
	t.Helper()
	rows, err := kit.Engine.Ent().Instance.Query().All(t.Context())
	require.NoError(t, err)
	for _, row := range rows {
		if !row.Status.Terminal() {
			n++
		}
	}
	return n
}

func TestAGraphEndsWithItsValue(t *testing.T) {
	t.Parallel()
	kit, id, say := reviewing(t)
	say("eve", true)
	say("bob", false)
	require.Equal(t, fsm.StatusAwaitingChildren, durabletest.RequireStatus(t, kit, id, fsm.StatusAwaitingChildren).Status, "one of two agrees")
	say("cy", true)
	require.Equal(t, []string{"cy", "eve"}, durabletest.RequireDone(t, kit, review, id))
	require.Eventually(t, func() bool {
		_, err := kit.Drain(t.Context())
		return err == nil && live(t, kit) == 0
	}, patience, pause, "what was asked besides is cancelled")
	graph, err := kit.Engine.Graph(t.Context(), id)
	require.NoError(t, err)
	for _, n := range graph.Nodes {
		if n.Name == "ada" || n.Name == "dee" {
			require.Equal(t, fsm.FailureCancelled, n.Failure, n.Name)
		}
	}
}

// Where the value cannot be any more, all of the graph runs, also what reports it.
func TestAGraphWithoutItsValueGoesOn(t *testing.T) {
	t.Parallel()
	kit, id, say := reviewing(t)
	for _, who := range people[:4] {
		say(who, false)
	}
	require.Equal(t, fsm.StatusAwaitingChildren, durabletest.RequireStatus(t, kit, id, fsm.StatusAwaitingChildren).Status, "eve has not answered")
	say("eve", true)
	failed := durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "nodes have failed")
	graph, err := kit.Engine.Graph(t.Context(), id)
	require.NoError(t, err, failed)
	require.Equal(t, fsm.StatusDone, graph.Nodes[len(graph.Nodes)-1].Status, "the refusal was reported")
}

// Failed nodes run again, and the value is there after all: while the graph waits for others,
// which are cancelled then, and after it has failed.
func TestAGraphThatEndsEarlyIsRestarted(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{true, false} {
		var broken atomic.Bool
		broken.Store(true)
		g := dag.New(review).CancelRest()
		first := dag.Do(g, "first", dag.In(g), func(_ context.Context, s string) (string, error) {
			if broken.Load() {
				return "", fsm.Permanent(errors.New("broken"))
			}
			return s, nil
		})
		value := dag.Do(g, "value", first, func(_ context.Context, s string) ([]string, error) { return []string{s}, nil })
		dag.Call(g, "slow", dag.In(g), opinion, dag.With(func(s fsm.Spec) fsm.Spec { return s.Key("slow") }))
		kit := durabletest.New(t, durabletest.Config{Machines: append(g.Return(value), approval()[len(approval())-1])})
		id, err := kit.Engine.Insert(t.Context(), review.New("paper"))
		require.NoError(t, err)
		durabletest.RequireDrain(t, kit)
		durabletest.RequireStatus(t, kit, id, fsm.StatusAwaitingChildren)
		again := id
		if waits {
			graph, err := kit.Engine.Graph(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, "first", graph.Nodes[0].Name)
			again = graph.Nodes[0].ID
		} else {
			_, err := kit.Engine.Signal(t.Context(), fsm.Key("slow"), vote.With(true))
			require.NoError(t, err)
			durabletest.RequireDrain(t, kit)
			durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "nodes have failed: first")
		}
		broken.Store(false)
		_, err = kit.Engine.Admin().Restart(t.Context(), again)
		require.NoError(t, err)
		durabletest.RequireDrain(t, kit)
		require.Equal(t, []string{"paper"}, durabletest.RequireDone(t, kit, review, id))
		require.Eventually(t, func() bool {
			_, err := kit.Drain(t.Context())
			return err == nil && live(t, kit) == 0
		}, patience, pause, "slow has ended, or is cancelled")
	}
}

// A cancel takes the graph's nodes along, and what they have called, though the value is not there.
func TestAGraphThatEndsEarlyIsCancelled(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]engine.VerbOption{"with descendants": {engine.Descendants()}, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kit, id, say := reviewing(t)
			say("ada", true)
			plan, err := kit.Engine.Admin().Cancel(t.Context(), id, options...)
			require.NoError(t, err, plan)
			require.Eventually(t, func() bool {
				_, err := kit.Drain(t.Context())
				return err == nil && live(t, kit) == 0
			}, patience, pause)
			durabletest.RequireFailed(t, kit, id, fsm.FailureCancelled, "")
		})
	}
}

// If the nodes of a value cannot be counted ahead, each end is looked at.
func TestAGraphEndsWithWhatWasAdded(t *testing.T) {
	t.Parallel()
	g := dag.New(night).CancelRest()
	extra := dag.Prepare(g, "extra", func(_ context.Context, s string) (string, error) { return s + s, nil })
	check := dag.Decide(g, "check", dag.In(g), func(_ context.Context, s string, to *dag.Adder) (string, error) {
		extra.Add(to, s)
		return s, nil
	})
	dag.Call(g, "slow", dag.In(g), opinion)
	broken := dag.Do(g, "broken", dag.In(g), func(context.Context, string) (string, error) { return "", fsm.Permanent(errors.New("no")) })
	sum := dag.Do3(g, "sum", check, dag.Maybe(broken), dag.Added(check, extra),
		func(_ context.Context, s string, b dag.Ended[string], more []string) (string, error) {
			return fmt.Sprint(s, b.Err != nil, more), nil
		})
	machines := append(g.Return(dag.After(sum, dag.Maybe(broken))), approval()[len(approval())-1])
	kit := durabletest.New(t, durabletest.Config{Machines: machines})
	id, err := kit.Engine.Insert(t.Context(), night.New("a"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.Equal(t, "atrue [aa]", durabletest.RequireDone(t, kit, night, id))
	require.Eventually(t, func() bool {
		_, err := kit.Drain(t.Context())
		return err == nil && live(t, kit) == 0
	}, patience, pause, "slow is cancelled")

	needless := dag.New(night).CancelRest()
	dag.Do(needless, "a", dag.In(needless), func(_ context.Context, s string) (string, error) { return s, nil })
	require.ErrorContains(t, fsm.Check(needless.Return(dag.In(needless))[0]), "return: CancelRest cancels the nodes that the graph's value does not need")
}

// A value that looks at a node's failure is there when that node is skipped, too.
func TestAGraphEndsWithWhatWasSkipped(t *testing.T) {
	t.Parallel()
	g := dag.New(review).CancelRest()
	sure := dag.Do(g, "sure", dag.In(g), func(_ context.Context, s string) ([]string, error) { return []string{s}, nil })
	gate := dag.Call(g, "gate", dag.In(g), opinion, dag.With(func(s fsm.Spec) fsm.Spec { return s.Key("gate") }))
	behind := dag.Do(g, "behind", gate, func(_ context.Context, s string) (string, error) { return s, nil })
	dag.Call(g, "slow", dag.In(g), opinion)
	kit := durabletest.New(t, durabletest.Config{Machines: append(g.Return(dag.After(sure, dag.Maybe(behind))), approval()[len(approval())-1])})
	id, err := kit.Engine.Insert(t.Context(), review.New("paper"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	durabletest.RequireStatus(t, kit, id, fsm.StatusAwaitingChildren)
	_, err = kit.Engine.Signal(t.Context(), fsm.Key("gate"), vote.With(false))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.Equal(t, []string{"paper"}, durabletest.RequireDone(t, kit, review, id))
}
