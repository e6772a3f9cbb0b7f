package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
)

var (
	trip = fsm.Declare[string, string]("trip")
	book = fsm.Declare[string, string]("book")
)

// full is a hotel without a room.
func full(hotel string) bool { return hotel == "full" }

// travelling books a flight and a hotel, then a car, and cancels the flight if the hotel is full.
func travelling(full func(hotel string) bool) []fsm.Definition {
	plan := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		return v.ScheduleGraph("end", v.State, fsm.Node("flight", book.New("flight")), fsm.Node("hotel", book.New(v.State)),
			fsm.Node("car", book.New("car")).After("flight", "hotel"),
			fsm.Node("refund", book.New("refund")).After("flight").AfterFailure("hotel"),
			fsm.Node("note", book.New("note")).AfterEnd("hotel")), nil
	}
	end := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		text := ""
		for _, c := range v.Children() {
			text += fmt.Sprint(c.Node, " ", c.Status, " ", c.Failure, "; ")
		}
		return v.Done(text), nil
	}
	start := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		if full(v.State) {
			return v.Fail(errors.New("no room")), nil
		}
		if _, waited := v.Upstream("flight"); !waited {
			return v.Done(v.State), nil
		}
		flight, err := book.Upstream(v, "flight")
		if err != nil {
			return nil, err
		}
		return v.Done(v.State + " with " + flight), nil
	}
	return []fsm.Definition{trip.Define(fsm.Step("start", plan), fsm.Step("end", end)), book.Define(fsm.Step("start", start))}
}

// A kit that serves the queue of a graph alone runs all nodes that name no queue, also in a graph
// that a node makes, after a node of another queue has added them, and after a Rewind and a
// Restart. A node that names an unserved queue stands still, and the kit names the queue.
func TestAGraphRunsInTheQueueOfItsRoot(t *testing.T) {
	t.Parallel()
	root, inner, leaf := fsm.Declare[string, string]("root", fsm.Queue("etl")), fsm.Declare[string, string]("inner"), fsm.Declare[string, string]("leaf")
	far := fsm.Declare[string, string]("far", fsm.Queue("far"))
	broken := true
	end := func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
		if v.Round().Failed > 0 {
			return v.Fail(errors.New("a node has failed")), nil
		}
		return v.Done(""), nil
	}
	machines := []fsm.Definition{
		root.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.ScheduleGraph("end", v.State, fsm.Node("leaf", leaf.New(v.State)), fsm.Node("inner", inner.New("")).AfterEnd("leaf"),
				fsm.Node("adds", far.New("")).AfterEnd("inner")), nil
		}), fsm.Step("end", end)),
		inner.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.ScheduleGraph("end", v.State, fsm.Node("below", leaf.New(""))), nil
		}), fsm.Step("end", end)),
		leaf.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			if v.State == "broken" && broken {
				return v.Fail(errors.New("broken")), nil
			}
			return v.Done(""), nil
		})),
		far.Define(fsm.Step("start", func(_ context.Context, v *fsm.Visit[string, string]) (fsm.Outcome, error) {
			return v.Done("").Add(fsm.Node("added", leaf.New("")), fsm.Node("again", inner.New("")).After("added"), fsm.Node("far", far.New("end").Step("end"))), nil
		}), fsm.Step("end", end)),
	}
	kit := durabletest.New(t, durabletest.Config{Machines: machines, Options: func(c *engine.Config) {
		c.Queues = map[string]engine.Queue{"etl": {}, "tonight": {}}
	}})
	_, err := kit.Engine.Insert(t.Context(), root.New("broken").Queue("tonight"))
	require.NoError(t, err)
	require.Equal(t, []string{"far"}, durabletest.RequireDrain(t, kit).Unserved)
	other := durabletest.New(t, durabletest.Config{Machines: machines})
	id, err := other.Engine.Insert(t.Context(), root.New("broken").Queue("tonight"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, other)
	want := map[string]string{"leaf": "tonight", "inner": "tonight", "below": "tonight", "adds": "far", "added": "tonight", "again": "tonight", "far": "far"}
	inQueues := func(n int) {
		rows, err := other.Engine.Ent().Instance.Query().Where(instance.NodeNotNil()).All(t.Context())
		require.NoError(t, err)
		require.Len(t, rows, n)
		for _, row := range rows {
			require.Equal(t, want[*row.Node], row.Queue, "node %s", *row.Node)
		}
	}
	inQueues(8)
	_, err = other.Engine.Admin().Rewind(t.Context(), id, "start", fsm.Change{})
	require.NoError(t, err)
	durabletest.RequireDrain(t, other)
	inQueues(16)
	broken = false
	_, err = other.Engine.Admin().Restart(t.Context(), id)
	require.NoError(t, err)
	durabletest.RequireDrain(t, other)
	durabletest.RequireDone(t, other, root, id)
	inQueues(16)
}

// A graph goes node by node, each by one DrainOne.
func TestDrainOneOfAGraph(t *testing.T) {
	t.Parallel()
	kit := durabletest.New(t, durabletest.Config{Machines: travelling(full)})
	id, err := kit.Engine.Insert(t.Context(), trip.New("full"))
	require.NoError(t, err)
	var kinds []fsm.OutcomeKind
	for {
		ran, ok, err := kit.DrainOne(t.Context())
		require.NoError(t, err)
		if !ok {
			break
		}
		kinds = append(kinds, ran.Outcome)
	}
	const done, fail = fsm.OutcomeDone, fsm.OutcomeFail
	require.Equal(t, []fsm.OutcomeKind{fsm.OutcomeChildren, done, fail}, kinds[:3], "the two that wait for nothing")
	require.Equal(t, []fsm.OutcomeKind{done, done, done}, kinds[3:], "the car is skipped, which is no step; the trip itself is the last")
	got, err := trip.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, "flight done ; hotel failed decided; car failed skipped; refund done ; note done ; ", got.Result)
}

// The hotel has a room after all: restarted, the graph goes on, node by node, with the nodes that
// failed and the nodes that were skipped for them. What waited for its failure is skipped instead.
func TestDrainOneOfARestartedGraph(t *testing.T) {
	t.Parallel()
	booked := true
	kit := durabletest.New(t, durabletest.Config{Machines: travelling(func(hotel string) bool { return booked && full(hotel) })})
	id, err := kit.Engine.Insert(t.Context(), trip.New("full"))
	require.NoError(t, err)
	steps := func() (n int) {
		for {
			_, ok, err := kit.DrainOne(t.Context())
			require.NoError(t, err)
			if !ok {
				return n
			}
			n++
		}
	}
	for range 3 { // the root, the flight, and the hotel in vain
		_, ok, err := kit.DrainOne(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
	}
	booked = false
	changed, err := kit.Engine.Admin().Restart(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, changed.Descendants, 4, "the hotel, and what waits for it again")
	require.Equal(t, 4, steps(), "the refund is skipped")
	got, err := trip.Get(t.Context(), kit.Engine, id)
	require.NoError(t, err)
	require.Equal(t, "flight done ; hotel done ; car done ; refund failed skipped; note done ; ", got.Result)
}

// The step that makes a graph, and a node's step, are tested without a database.
func ExampleRunStep_graph() {
	machines := travelling(full)
	out, err := durabletest.RunStep(context.Background(), machines[0], "start", durabletest.Visit{State: "sea view"})
	fmt.Println(out.Children[2].Node, out.Edges[:2], out.Edges[3].Needs, out.Join.CancelRest, err)
	out, err = durabletest.RunStep(context.Background(), machines[1], "start", durabletest.Visit{State: "car", Node: "car",
		Upstream: map[string]durabletest.Child{"flight": durabletest.DoneChild(book, "flight", "LH 1"), "hotel": durabletest.DoneChild(book, "sea view", "12")}})
	fmt.Println(string(out.Result), err)
	_, err = durabletest.RunStep(context.Background(), machines[1], "start", durabletest.Visit{State: "note", Node: "note",
		Upstream: map[string]durabletest.Child{"flight": durabletest.FailedChild(book, "flight", fsm.FailureDecided, "fog")}})
	fmt.Println(err)
	// Output:
	// car [{flight car done false} {hotel car done false}] failed false <nil>
	// "car with LH 1" <nil>
	// instance 1 of machine "book" failed (decided): fog
}
