package dag_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/dag"
	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
)

var (
	night   = fsm.Declare[string, string]("night")
	counted = fsm.Declare[string, int]("counted")
)

// nightly has nodes of all kinds. Its state names the node that fails, or the piece, or the called
// machine.
func nightly() []fsm.Definition {
	g := dag.New(night)
	in := dag.In(g)
	load := func(name string) func(context.Context, string) (int, error) {
		return func(_ context.Context, bad string) (int, error) {
			if bad == name {
				return 0, fsm.Permanent(errors.New("no " + name))
			}
			return len(name), nil
		}
	}
	orders := dag.Do(g, "orders", in, load("orders"))
	users := dag.Do(g, "users", in, load("users"))
	list := dag.Do2(g, "list", in, dag.All(orders, users), func(_ context.Context, bad string, all []int) ([]string, error) {
		out := make([]string, all[0])
		for i := range out {
			out[i] = fmt.Sprint(bad, i)
		}
		return out, nil
	})
	sizes := dag.Each(g, "sizes", list, func(_ context.Context, s string) (int, error) {
		if s == "piece2" || s == "piece4" {
			return 0, fsm.Permanent(errors.New("no " + s))
		}
		return len(s), nil
	}, dag.With(func(s fsm.Spec) fsm.Spec { return s.Priority(3) }))
	called := dag.Call(g, "called", in, counted)
	note := dag.Do(g, "note", dag.Maybe(users), func(_ context.Context, o dag.Ended[int]) (string, error) {
		return fmt.Sprint("users ", o.Value, " ", o.Err != nil), nil
	})
	refund := dag.Do2(g, "refund", dag.Failed(sizes), orders, func(_ context.Context, why error, n int) (string, error) {
		return fmt.Sprintf("refund %d: %v", n, why), nil
	})
	last := dag.Do3(g, "last", dag.After(sizes, called), called, note, func(_ context.Context, s []int, n int, note string) (string, error) {
		return fmt.Sprint(s, n, note), nil
	}, dag.Retry(fsm.RetryPolicy{MaxAttempts: 1}))
	all := dag.Do2(g, "all", dag.Maybe(refund), dag.Maybe(last), func(_ context.Context, r, l dag.Ended[string]) (string, error) {
		if l.Err != nil {
			return r.Value, r.Err
		}
		return l.Value, nil
	}, dag.Retry(fsm.RetryPolicy{MaxAttempts: 1}))
	return append(g.Return(all), counted.Job(func(_ context.Context, bad string) (int, error) {
		if bad == "called" {
			return 0, fsm.Permanent(errors.New("no call"))
		}
		return len(bad), nil
	}))
}

func TestGraphRuns(t *testing.T) {
	t.Parallel()
	kit := durabletest.New(t, durabletest.Config{Machines: nightly()})
	for _, at := range []struct{ state, done, failed string }{
		{state: "ok", done: "[3 3 3 3 3 3] 2users 5 false"},
		{state: "piece", done: "refund 6: instance"},
		{state: "users", done: "refund 6: instance"}, // what was skipped has failed, too
		{state: "orders", failed: "nodes have failed: orders: error: no orders; all: "},
		{state: "called", failed: "called: decided"},
	} {
		id, err := kit.Engine.Insert(t.Context(), night.New(at.state))
		require.NoError(t, err)
		_, err = kit.Drain(t.Context())
		require.NoError(t, err)
		got, err := night.Wait(t.Context(), kit.Engine, id)
		if at.failed != "" {
			require.ErrorContains(t, err, at.failed, at.state)
			continue
		}
		require.NoError(t, err, at.state)
		require.True(t, strings.HasPrefix(got, at.done), "%s: %s", at.state, got)
		if at.state == "piece" {
			require.Contains(t, got, "2 of 6 pieces have no result, the first: piece 2:")
		}
		graph, err := kit.Engine.Graph(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, graph.Nodes, 9)
		require.Contains(t, graph.Mermaid(), "sizes<br/>")
	}
}

// engine.New reports each fault of a graph, with its field.
func TestFaultsOfDeclaredGraphs(t *testing.T) {
	t.Parallel()
	same := func(_ context.Context, s string) (string, error) { return s, nil }
	both := func(_ context.Context, _ string, _ error) (string, error) { return "", nil }
	keyed := dag.With(func(s fsm.Spec) fsm.Spec { return s.Key("k") })
	faults := func(declare func(g *dag.Graph[string, string]) dag.Value[string]) (text string) {
		g := dag.New(night)
		for _, d := range g.Return(declare(g)) {
			for _, err := range hidden.Machine(d).Faults {
				text += err.Error() + "\n"
			}
		}
		return text
	}
	for want, declare := range map[string]func(g *dag.Graph[string, string]) dag.Value[string]{
		"nodes: none": func(g *dag.Graph[string, string]) dag.Value[string] { return dag.In(g) },
		"return: takes a value that no node has declared": func(g *dag.Graph[string, string]) dag.Value[string] {
			dag.Do(g, "a", dag.In(g), same)
			return dag.Value[string]{}
		},
		`nodes["b"]: takes a value of another graph`: func(g *dag.Graph[string, string]) dag.Value[string] {
			return dag.Do(g, "b", dag.In(dag.New(night)), same)
		},
		`nodes["c"]: takes a value of another graph`: func(g *dag.Graph[string, string]) dag.Value[string] {
			return dag.Do(g, "c", dag.After(dag.In(g), dag.In(dag.New(night))), same)
		},
		`nodes["a"]: declared twice`: func(g *dag.Graph[string, string]) dag.Value[string] {
			dag.Do(g, "a", dag.In(g), same)
			return dag.Do(g, "a", dag.In(g), same)
		},
		`nodes["a"]: nil function`: func(g *dag.Graph[string, string]) dag.Value[string] {
			return dag.Do[string, string, string, string](g, "a", dag.In(g), nil)
		},
		`nodes["a"]: nil option`: func(g *dag.Graph[string, string]) dag.Value[string] { return dag.Do(g, "a", dag.In(g), same, nil) },
		`nodes["a"]: nil function in With`: func(g *dag.Graph[string, string]) dag.Value[string] {
			return dag.Do(g, "a", dag.In(g), same, dag.With(nil))
		},
		`nodes["b"]: it takes node "a" both as done and as failed: take it once`: func(g *dag.Graph[string, string]) dag.Value[string] {
			a := dag.Do(g, "a", dag.In(g), same)
			return dag.Do2(g, "b", a, dag.Failed(a), both)
		},
		`nodes["b"]: a quorum of 2 of 1 values, want 1 to all of them`: func(g *dag.Graph[string, string]) dag.Value[string] {
			dag.Do(g, "b", dag.Quorum(2, dag.Do(g, "a", dag.In(g), same)), func(_ context.Context, s []string) (string, error) { return s[0], nil })
			return dag.In(g)
		},
		`nodes["b"]: a quorum of values that are not the results of nodes: give Quorum what Do and its like return`: func(g *dag.Graph[string, string]) dag.Value[string] {
			return dag.Do2(g, "b", dag.In(g), dag.Quorum(1, dag.In(g)), func(_ context.Context, s string, _ []string) (string, error) { return s, nil })
		},
		`nodes["b"]: takes more than one quorum`: func(g *dag.Graph[string, string]) dag.Value[string] {
			one := dag.Quorum(1, dag.Do(g, "a", dag.In(g), same))
			return dag.Do2(g, "b", one, one, func(_ context.Context, s, _ []string) (string, error) { return s[0], nil })
		},
		`nodes["b"]: it takes node "a" in a quorum and by another value: take it once`: func(g *dag.Graph[string, string]) dag.Value[string] {
			a := dag.Do(g, "a", dag.In(g), same)
			return dag.Do2(g, "b", a, dag.Quorum(1, a), func(_ context.Context, s string, _ []string) (string, error) { return s, nil })
		},
		`nodes["b"]: takes a quorum that Ended or Failed changes: take the Quorum itself`: func(g *dag.Graph[string, string]) dag.Value[string] {
			a := dag.Do(g, "a", dag.In(g), same)
			return dag.Do2(g, "b", a, dag.Maybe(dag.Quorum(1, a)), func(_ context.Context, s string, _ dag.Ended[[]string]) (string, error) { return s, nil })
		},
		`nodes["p"]: declared twice`: func(g *dag.Graph[string, string]) dag.Value[string] {
			dag.Prepare(g, "p", same)
			return dag.Do(g, "p", dag.In(g), same)
		},
		`nodes["b"]: Added needs the value that Decide returned, and a branch of the graph`: func(g *dag.Graph[string, string]) dag.Value[string] {
			dag.Do(g, "b", dag.Added(dag.In(g), dag.Prepare(g, "p", same)), func(_ context.Context, s []string) (string, error) { return "", nil })
			return dag.In(g)
		},
		`nodes["b"]: takes the failure of nodes that a decision point adds: take their results by Added`: func(g *dag.Graph[string, string]) dag.Value[string] {
			a := dag.Decide(g, "a", dag.In(g), func(_ context.Context, s string, _ *dag.Adder) (string, error) { return s, nil })
			return dag.Do2(g, "b", dag.In(g), dag.Failed(dag.Added(a, dag.Prepare(g, "p", same))), both)
		},
		`nodes["s"]: nil function`: func(g *dag.Graph[string, string]) dag.Value[string] {
			a := dag.Do(g, "a", dag.In(g), func(context.Context, string) ([]string, error) { return nil, nil })
			dag.Some(g, "s", a, same, nil)
			return dag.In(g)
		},
		`nodes["k"]: With gives it a key`: func(g *dag.Graph[string, string]) dag.Value[string] {
			return dag.Do(g, "k", dag.In(g), same, keyed)
		},
		`nodes["e"]: With gives it a key`: func(g *dag.Graph[string, string]) dag.Value[string] {
			dag.Each(g, "e", dag.Do(g, "a", dag.In(g), func(context.Context, string) ([]string, error) { return nil, nil }), same, keyed)
			return dag.In(g)
		},
		`nodes["p"]: With gives it a key`: func(g *dag.Graph[string, string]) dag.Value[string] {
			dag.Prepare(g, "p", same, keyed)
			return dag.Do(g, "a", dag.In(g), same)
		},
		`retry.MaxAttempts: -2`: func(g *dag.Graph[string, string]) dag.Value[string] {
			return dag.Do(g, "a", dag.In(g), same, dag.Retry(fsm.RetryPolicy{MaxAttempts: -2}))
		},
	} {
		require.Contains(t, faults(declare), want)
	}
	require.Empty(t, faults(func(g *dag.Graph[string, string]) dag.Value[string] {
		a := dag.Do(g, "a", dag.In(g), same)
		return dag.Do2(g, "b", a, dag.Maybe(a), func(_ context.Context, s string, _ dag.Ended[string]) (string, error) { return s, nil })
	}))
}

// What a graph is made of runs where the graph does, has its labels if it asks for that, and With
// changes what does the work: it sees the states of these alone.
func TestSpecsOfNodes(t *testing.T) {
	t.Parallel()
	machine := fsm.Declare[string, string]("placed", fsm.Queue("nightly"))
	g := dag.New(machine).InheritLabels()
	var states []any
	with := dag.With(func(s fsm.Spec) fsm.Spec {
		states = append(states, s.State())
		return s.Label("of", fmt.Sprint(s.State())).Priority(3)
	})
	in := dag.In(g)
	list := dag.Do(g, "list", in, func(context.Context, string) ([]int, error) { return []int{7, 8}, nil })
	sizes := dag.Each(g, "sizes", list, func(_ context.Context, n int) (int, error) { return n, nil }, with)
	called := dag.Call(g, "called", in, counted, dag.With(func(s fsm.Spec) fsm.Spec { return s.Key(fsm.Key("counted:" + s.State().(string))) }))
	prices := fsm.Declare[string, int]("prices", fsm.Queue("prices"))
	priced := dag.Call(g, "priced", in, prices)
	branch := dag.Prepare(g, "branch", func(_ context.Context, b bool) (bool, error) { return b, nil })
	check := dag.Decide(g, "check", called, func(_ context.Context, n int, add *dag.Adder) (int, error) {
		branch.Add(add, true)
		return n, nil
	}, dag.With(func(s fsm.Spec) fsm.Spec { return s.Queue("decisions") }))
	all := dag.Do3(g, "all", check, dag.After(sizes, priced), dag.Added(check, branch), func(_ context.Context, n int, of []int, b []bool) (string, error) {
		return fmt.Sprint(n, of, b), nil
	}, dag.With(func(s fsm.Spec) fsm.Spec { return s.Queue("io") }))
	length := func(_ context.Context, s string) (int, error) { return len(s), nil }
	kit := durabletest.New(t, durabletest.Config{Machines: append(g.Return(all), counted.Job(length), prices.Job(length))})
	states = nil
	id, err := kit.Engine.Insert(t.Context(), machine.New("abc").Queue("tonight").Label("tenant", "acme"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.Equal(t, "3 [7 8] [true]", durabletest.RequireDone(t, kit, machine, id))
	require.Equal(t, []any{7, 8}, states)

	rows, err := kit.Engine.Ent().Instance.Query().All(t.Context())
	require.NoError(t, err)
	require.Len(t, rows, 12)
	for _, row := range rows {
		queue, labels := "tonight", fsm.Texts{"tenant": "acme"}
		switch row.Machine {
		case "prices":
			queue = "prices" // its own
		case "placed.check":
			queue = "decisions"
		case "counted":
			require.Equal(t, "counted:abc", *row.CorrelationKey)
		case "placed.all":
			queue = "io"
		case "placed.sizes.piece":
			labels["of"] = string(row.State)
		}
		require.Equal(t, queue, row.Queue, row.Machine)
		require.Equal(t, labels, row.Labels, row.Machine)
	}
	for _, d := range g.Return(all) {
		require.Equal(t, "nightly", hidden.Machine(d).Queue)
	}
}

// A called instance has the key that its machine declares. A graph may declare its keys, too,
// though its declaration makes specs of zero states.
func TestDeclaredKeysInGraphs(t *testing.T) {
	t.Parallel()
	key := fsm.KeyBy(func(s string) fsm.Key { return fsm.Key(s[:1]) }) // panics for the zero state
	machine := fsm.Declare[string, string]("keyed", key)
	counted := fsm.Declare[string, int]("counted", fsm.KeyBy(func(s string) fsm.Key { return fsm.Key("counted:" + s) }))
	g := dag.New(machine)
	called := dag.Call(g, "called", dag.In(g), counted)
	last := dag.Do(g, "last", called, func(_ context.Context, n int) (string, error) { return fmt.Sprint(n), nil })
	kit := durabletest.New(t, durabletest.Config{Machines: append(g.Return(last), counted.Job(func(_ context.Context, s string) (int, error) {
		return len(s), nil
	}))})
	id, err := kit.Engine.Insert(t.Context(), machine.New("abc"))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	require.Equal(t, "3", durabletest.RequireDone(t, kit, machine, id))
	rows, err := kit.Engine.Ent().Instance.Query().All(t.Context())
	require.NoError(t, err)
	keys := map[string]string{}
	for _, row := range rows {
		if row.CorrelationKey != nil {
			keys[row.Machine] = *row.CorrelationKey
		}
	}
	require.Equal(t, map[string]string{"keyed": "a", "counted": "counted:abc"}, keys)
}

// A key that shows only in a state is no other.
func TestAPieceHasNoKey(t *testing.T) {
	t.Parallel()
	g := dag.New(night)
	list := dag.Do(g, "list", dag.In(g), func(context.Context, string) ([]string, error) { return []string{"a", "a"}, nil })
	pieces := dag.Each(g, "pieces", list, func(_ context.Context, s string) (string, error) { return s, nil },
		dag.With(func(s fsm.Spec) fsm.Spec { return s.Key(fsm.Key(s.State().(string))) }))
	kit := durabletest.New(t, durabletest.Config{Machines: g.Return(dag.Do(g, "all", pieces, func(_ context.Context, s []string) (string, error) {
		return fmt.Sprint(s), nil
	}))})
	id, err := kit.Engine.Insert(t.Context(), night.New(""))
	require.NoError(t, err)
	durabletest.RequireDrain(t, kit)
	durabletest.RequireFailed(t, kit, id, fsm.FailureDecided, "pieces[0].key: With gives it a key")
}

// A node goes on when enough of others are done, and a fan-out when its own join says so.
func TestQuorumsOfNodesAndPieces(t *testing.T) {
	t.Parallel()
	g := dag.New(night)
	in := dag.In(g)
	var of []dag.Value[string]
	for _, name := range []string{"a", "b", "c"} {
		of = append(of, dag.Do(g, name, in, func(_ context.Context, bad string) (string, error) {
			if strings.Contains(bad, name) {
				return "", fsm.Permanent(errors.New("no " + name))
			}
			return name, nil
		}))
	}
	two := dag.Do(g, "two", dag.Quorum(2, of...), func(_ context.Context, there []string) ([]string, error) { return there, nil })
	some := dag.Some(g, "some", two, func(_ context.Context, s string) (string, error) {
		if s == "a" {
			return "", fsm.Permanent(errors.New("not a"))
		}
		return s + s, nil
	}, func(j *fsm.ChildrenOutcome, n int) *fsm.ChildrenOutcome { return j.Quorum(n - 1).CancelRest() })
	report := dag.Do(g, "report", some, func(_ context.Context, all []dag.Piece[string]) (string, error) {
		return fmt.Sprint(len(all), dag.Results(all)), nil
	})
	kit := durabletest.New(t, durabletest.Config{Machines: g.Return(report)})
	for bad, want := range map[string]string{"": "[bb", "a": "2 [bb", "b": "2 [cc", "ab": ""} {
		id, err := kit.Engine.Insert(t.Context(), night.New(bad))
		require.NoError(t, err)
		_, err = kit.Drain(t.Context())
		require.NoError(t, err)
		got, err := night.Wait(t.Context(), kit.Engine, id)
		graph, drawn := kit.Engine.Graph(t.Context(), id)
		require.NoError(t, drawn)
		require.Equal(t, 2, graph.Nodes[3].Quorum)
		require.Contains(t, graph.Mermaid(), "any 2")
		if want == "" {
			require.ErrorContains(t, err, "a: error: no a; b: error: no b")
			require.Equal(t, fsm.FailureSkipped, graph.Nodes[3].Failure)
			continue
		}
		require.NoError(t, err, bad)
		require.Contains(t, got, want, bad)
	}
}

// A decision point adds prepared nodes, and the nodes behind converge on exactly those.
func TestDecisionPoints(t *testing.T) {
	t.Parallel()
	g := dag.New(night)
	alert := dag.Prepare(g, "alert", func(_ context.Context, n int) (int, error) {
		if n == 3 {
			return 0, fsm.Permanent(errors.New("no third"))
		}
		return 10 * n, nil
	}, dag.With(func(s fsm.Spec) fsm.Spec { return s.Priority(2) }))
	note := dag.Prepare(g, "note", func(_ context.Context, s string) (string, error) { return s, nil })
	check := dag.Decide(g, "check", dag.In(g), func(_ context.Context, s string, add *dag.Adder) (int, error) {
		for i := range len(s) {
			alert.Add(add, i+1)
		}
		note.Add(add, "noted "+s)
		return len(s), nil
	})
	sum := dag.Do2(g, "sum", check, dag.Added(check, alert), func(_ context.Context, n int, all []int) (string, error) { return fmt.Sprint(n, all), nil })
	seen := dag.Do(g, "seen", dag.Maybe(dag.Added(check, alert)), func(_ context.Context, o dag.Ended[[]int]) (string, error) {
		return fmt.Sprint(o.Value, o.Err != nil), nil
	})
	all := dag.Do2(g, "all", dag.Maybe(sum), seen, func(_ context.Context, o dag.Ended[string], seen string) (string, error) {
		return fmt.Sprint(o.Value, o.Err != nil, " ", seen), nil
	})
	kit := durabletest.New(t, durabletest.Config{Machines: g.Return(all)})
	for state, want := range map[string]string{"": "0 []false [] false", "ab": "2 [10 20]false [10 20] false", "abc": "true [] true"} {
		id, err := kit.Engine.Insert(t.Context(), night.New(state))
		require.NoError(t, err)
		nodes := 0
		for { // node by node
			_, ok, err := kit.DrainOne(t.Context())
			require.NoError(t, err)
			if !ok {
				break
			}
			nodes++
		}
		got, err := night.Wait(t.Context(), kit.Engine, id)
		require.NoError(t, err)
		require.Equal(t, want, got)
		graph, err := kit.Engine.Graph(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, graph.Nodes, 4+len(state)+1)
		skipped := 0
		if state == "abc" {
			skipped = 1 // the sum, which runs no step
		}
		require.Equal(t, len(graph.Nodes)+2-skipped, nodes, "one visit each, and two of the root")
		require.Contains(t, graph.Mermaid(), "check#46;note#46;0<br/>done")
		require.Equal(t, "check.note.0", graph.Nodes[len(graph.Nodes)-1].Name)
	}
}

// What a decision point adds is the graph's value, too; a branch of another graph is not.
func TestReturnWhatIsAdded(t *testing.T) {
	t.Parallel()
	listing := fsm.Declare[string, []string]("listing")
	other := dag.New(listing)
	foreign := dag.Prepare(other, "foreign", func(_ context.Context, s string) (string, error) { return s, nil })
	g := dag.New(listing)
	one := dag.Prepare(g, "one", func(_ context.Context, s string) (string, error) { return s + s, nil })
	spread := dag.Decide(g, "spread", dag.In(g), func(_ context.Context, s string, add *dag.Adder) (int, error) {
		if s == "foreign" {
			foreign.Add(add, s)
		}
		for _, word := range strings.Fields(s) {
			one.Add(add, word)
		}
		return 0, nil
	}, dag.Retry(fsm.RetryPolicy{MaxAttempts: 1}))
	kit := durabletest.New(t, durabletest.Config{Machines: g.Return(dag.Added(spread, one))})
	for state, want := range map[string]string{"a b": "[aa bb]", "foreign": ""} {
		id, err := kit.Engine.Insert(t.Context(), listing.New(state))
		require.NoError(t, err)
		_, err = kit.Drain(t.Context())
		require.NoError(t, err)
		got, err := listing.Wait(t.Context(), kit.Engine, id)
		if want == "" {
			require.ErrorContains(t, err, `branch "foreign" belongs to another graph`)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprint(got))
	}
}
