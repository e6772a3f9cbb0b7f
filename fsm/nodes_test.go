package fsm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

func nodeOf(name string) fsm.GraphNode { return fsm.Node(name, cartMachine.New(cart{})) }

// The commit has a node for each, in order, with the edges by index. The methods of a node leave
// the one that they are called on as it is, and the methods of its outcome apply.
func TestScheduleGraph(t *testing.T) {
	t.Parallel()
	got, err := run(t, func(v *cartVisit) fsm.Outcome {
		c := nodeOf("c").After("a")
		_ = c.After("b")
		return v.ScheduleGraph("end", v.State, nodeOf("a"), nodeOf("b").AfterFailure("a"), c.AfterEnd("b")).FailFast()
	})
	require.NoError(t, err)
	require.Equal(t, step.Children, got.Kind)
	require.Len(t, got.Spawn, 3)
	require.Equal(t, &step.Join{Failed: 1}, got.Join)
	require.Equal(t, &step.Graph{Nodes: []string{"a", "b", "c"}, Edges: []step.Edge{
		{From: 0, To: 1, Needs: step.NeedsFailed}, {From: 0, To: 2, Needs: step.NeedsDone}, {From: 1, To: 2, Needs: step.NeedsEnd}}}, got.Graph)

	got, err = run(t, func(v *cartVisit) fsm.Outcome { return v.ScheduleGraph("end", v.State, nodeOf("a")) })
	require.NoError(t, err)
	require.Nil(t, got.Join, "the store notes each graph")

	got, err = run(t, func(v *cartVisit) fsm.Outcome { return v.ScheduleGraph("end", v.State) })
	require.NoError(t, err)
	require.Nil(t, got.Graph)
	require.Empty(t, got.Spawn)
}

// A node is in the queue that its spec, the middleware or its machine names, else in the root's. Of
// an added one the commit knows it, and the middleware sees none. A child that is no node is in its
// machine's.
func TestQueuesOfNodes(t *testing.T) {
	t.Parallel()
	io := fsm.Declare[cart, string]("io", fsm.Queue("io"))
	anew := fsm.Declare[cart, string]("anew")
	specs := []fsm.Spec{cartMachine.New(cart{}), cartMachine.New(cart{}).Queue("own"), io.New(cart{}), io.New(cart{}).Queue("own"), anew.New(cart{}),
		cartMachine.New(cart{}).Queue("moved")}
	var seen []string
	env := &step.Env{Codec: fsm.JSON{}, Limits: step.Limits{}.WithDefaults(), Child: func(_ context.Context, spec any) (any, error) {
		s := spec.(fsm.Spec)
		o := s.Options()
		seen = append(seen, o.Queue)
		switch {
		case o.Machine == "anew":
			return anew.New(cart{}).Queue(o.Queue), nil
		case o.Queue == "moved":
			return s.Queue("by middleware"), nil
		}
		return s, nil
	}}
	queues := func(out func(v *cartVisit) fsm.Outcome) (queues []string, ofRoot []int) {
		seen = nil
		m := hidden.Machine(two(func(_ context.Context, v *cartVisit) (fsm.Outcome, error) { return out(v), nil }))
		got, err := m.Steps["start"].Run(t.Context(), &step.Claim{Env: env, ID: 1, Machine: m.Name, Version: 1, Step: "start", Queue: "here", State: json.RawMessage(`{}`),
			Node: "n", Parent: 9})
		require.NoError(t, err)
		spawned := got.Spawn
		if got.Add != nil {
			spawned = got.Add.Specs
		}
		for i, s := range spawned {
			if queues = append(queues, s.Queue); s.OfRoot {
				ofRoot = append(ofRoot, i)
			}
		}
		return queues, ofRoot
	}
	nodes := make([]fsm.GraphNode, len(specs))
	for i, s := range specs {
		nodes[i] = fsm.Node(fmt.Sprint("n", i), s)
	}

	got, late := queues(func(v *cartVisit) fsm.Outcome { return v.ScheduleGraph("end", v.State, nodes...) })
	require.Equal(t, []string{"here", "own", "io", "own", "here", "by middleware"}, got)
	require.Equal(t, []string{"here", "own", "io", "own", "here", "moved"}, seen)
	require.Empty(t, late)

	got, late = queues(func(v *cartVisit) fsm.Outcome { return v.Done("").Add(nodes...) })
	require.Equal(t, []string{"", "own", "io", "own", "", "by middleware"}, got)
	require.Equal(t, []string{"", "own", "io", "own", "", "moved"}, seen)
	require.Equal(t, []int{0, 4}, late)

	got, late = queues(func(v *cartVisit) fsm.Outcome { return v.ScheduleChildren("end", v.State, specs...) })
	require.Equal(t, []string{"default", "own", "io", "own", "default", "by middleware"}, got)
	require.Empty(t, late)
}

// Each fault of a graph is found before anything is sent, and named.
func TestFaultsOfGraphs(t *testing.T) {
	t.Parallel()
	long := make([]fsm.GraphNode, 30)
	for i := range long {
		long[i] = nodeOf(fmt.Sprint("n", i)).After(fmt.Sprint("n", (i+1)%len(long)))
	}
	crowd := []fsm.GraphNode{nodeOf("x")}
	for i := range 30 {
		crowd = append(crowd, nodeOf(fmt.Sprint("n", i)))
		for j := range i {
			crowd[i+1] = crowd[i+1].AfterEnd(fmt.Sprint("n", j))
		}
	}
	for name, c := range map[string]struct {
		nodes []fsm.GraphNode
		want  string
	}{
		"no name":       {[]fsm.GraphNode{nodeOf("a"), nodeOf("")}, "outcome: nodes[1].name: empty, want 1 to 512 bytes"},
		"long name":     {[]fsm.GraphNode{nodeOf(strings.Repeat("a", 513))}, "outcome: nodes[0].name: 513 bytes, at most 512"},
		"same name":     {[]fsm.GraphNode{nodeOf("a"), nodeOf("b"), nodeOf("a")}, `outcome: nodes[2].name: "a" is the name of nodes[0]: give each node another`},
		"unknown":       {[]fsm.GraphNode{nodeOf("a").After("b")}, `outcome: nodes[0].after: node "b" is not in the graph`},
		"twice":         {[]fsm.GraphNode{nodeOf("a"), nodeOf("b").After("a").AfterEnd("a")}, `outcome: nodes[1].after: it names node "a" twice`},
		"none of any":   {[]fsm.GraphNode{nodeOf("a"), nodeOf("b").AfterAny(0, "a")}, "outcome: nodes[1].after_any: 0, at least 1"},
		"more than any": {[]fsm.GraphNode{nodeOf("a"), nodeOf("b").After("a").AfterAny(2, "a")}, "outcome: nodes[1].after_any: 2, at most the number of names, 1"},
		"two quorums":   {[]fsm.GraphNode{nodeOf("a"), nodeOf("b").AfterAny(1, "a").AfterAny(1, "a")}, "outcome: nodes[1].after_any: called twice"},
		"cycle of any":  {[]fsm.GraphNode{nodeOf("a").AfterAny(1, "b", "c"), nodeOf("b").After("a"), nodeOf("c")}, "outcome: nodes: cycle: a → b → a"},
		"before nobody": {[]fsm.GraphNode{nodeOf("a").Before("b")}, `outcome: nodes[0].before: node "b" is not in the graph`},
		"both ways":     {[]fsm.GraphNode{nodeOf("a").Before("b"), nodeOf("b").Before("a")}, "outcome: nodes: cycle: a → b → a"},
		"of itself":     {[]fsm.GraphNode{nodeOf("x"), nodeOf("a").After("a", "x")}, "outcome: nodes: cycle: a → a"},
		"cycle":         {[]fsm.GraphNode{nodeOf("x"), nodeOf("a").After("c", "x"), nodeOf("b").After("a"), nodeOf("c").AfterEnd("b")}, "outcome: nodes: cycle: a → b → c → a"},
		"behind it":     {[]fsm.GraphNode{nodeOf("z").After("b"), nodeOf("a").After("b"), nodeOf("b").After("a")}, "outcome: nodes: cycle: b → a → b"},
		"long cycle":    {long, "→ (11 more) →"},
		"with a key":    {[]fsm.GraphNode{fsm.Node("a", cartMachine.New(cart{}).Key("k"))}, "outcome: nodes[0].key: a node has a name and no correlation key"},
		"bad spec":      {[]fsm.GraphNode{fsm.Node("a", cartMachine.New(cart{}).Queue(""))}, "outcome: nodes[0].queue"},
		"no spec":       {[]fsm.GraphNode{{}}, "outcome: nodes[0].name: empty, want 1 to 512 bytes"},
		"many edges":    {crowd, "over 400 edges in the graph"},
		"too many":      {make([]fsm.GraphNode, 41), "outcome: nodes: 41, at most 40"},
		"quorum of all": {nil, "outcome: quorum: 1, at most the number of children, 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := hidden.Machine(cartMachine.Define(
				fsm.Step("start", func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
					out := v.ScheduleGraph("end", v.State, c.nodes...)
					if c.nodes == nil {
						out = out.Quorum(1)
					}
					return out, nil
				}), fsm.Step("end", func(context.Context, *cartVisit) (fsm.Outcome, error) { return nil, errors.New("unreachable") })))

			env := &step.Env{Codec: fsm.JSON{}, Limits: step.Limits{Children: 40}.WithDefaults()}
			_, err := m.Steps["start"].Run(t.Context(), &step.Claim{Env: env, ID: 1, Machine: m.Name, Version: 1, Step: "start", State: json.RawMessage(`{}`)})
			require.ErrorContains(t, err, c.want)
			_, ok := errors.AsType[*fsm.OutcomeError](err)
			require.True(t, ok)
		})
	}
}

func ExampleVisit_ScheduleGraph() {
	m := hidden.Machine(Loan.Define(
		fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
			return v.ScheduleGraph("choose", v.State,
				fsm.Node("rates", Quote.New(1)),
				fsm.Node("risk", Quote.New(2)),
				fsm.Node("offer", Quote.New(3)).After("rates", "risk"),
				fsm.Node("apologise", Quote.New(4)).AfterFailure("offer"),
				fsm.Node("archive", Quote.New(5)).AfterEnd("offer", "apologise")), nil
		}),
		fsm.Step("choose", choose),
	))

	out, err := m.Steps["start"].Run(context.Background(), &step.Claim{ID: 1, Machine: "loan", Version: 1, Step: "start", State: json.RawMessage(`1000`)})
	fmt.Println(len(out.Spawn), "nodes,", len(out.Graph.Edges), "edges", err)
	// Output: 5 nodes, 5 edges <nil>
}

func ExampleNode() {
	m := hidden.Machine(Loan.Define(fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		return v.ScheduleGraph("start", v.State, fsm.Node("a", Quote.New(1)).After("c"), fsm.Node("b", Quote.New(2)).After("a"),
			fsm.Node("c", Quote.New(3)).After("b")), nil
	})))

	_, err := m.Steps["start"].Run(context.Background(), &step.Claim{ID: 1, Machine: "loan", Version: 1, Step: "start", State: json.RawMessage(`1000`)})
	fmt.Println(err)
	// Output: outcome: nodes: cycle: a → b → c → a
}

// A node gets the results of those that it has waited for.
func ExampleMachine_Upstream() {
	m := hidden.Machine(Loan.Define(fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		rates, err := Quote.Upstream(v, "rates")
		if err != nil {
			return nil, err
		}
		_, err = Quote.Upstream(v, "risk")
		if risk, ok := v.Upstream("risk"); ok && risk.Status == fsm.StatusFailed {
			return v.Done(fmt.Sprintf("%s; %v", rates, err)), nil
		}
		_, err = Quote.Upstream(v, "archive")
		return v.Done(rates), err
	})))

	out, err := m.Steps["start"].Run(context.Background(), &step.Claim{ID: 9, Machine: "loan", Version: 1, Step: "start", State: json.RawMessage(`1000`),
		Node: "offer", Upstream: []step.Upstream{
			{Child: step.Child{ID: 7, Node: "rates", Machine: "loan.quote", Status: "done", Result: json.RawMessage(`"3.1 %"`)}},
			{Child: step.Child{ID: 8, Node: "risk", Machine: "loan.quote", Status: "failed", Failure: "decided", LastError: "unknown"}, Needs: step.NeedsEnd},
		}})
	fmt.Println(string(out.Result), err)
	// Output: "3.1 %; instance 8 of machine \"loan.quote\" failed (decided): unknown" <nil>
}

// added returns the outcome of a node whose step adds nodes, once done.
func added(t *testing.T, node string, nodes ...fsm.GraphNode) (*step.Commit, error) {
	t.Helper()
	m := hidden.Machine(cartMachine.Define(fsm.Step("start", func(_ context.Context, v *cartVisit) (fsm.Outcome, error) {
		return v.Done("").Add(nodes...), nil
	})))

	env := &step.Env{Codec: fsm.JSON{}, Limits: step.Limits{Children: 40}.WithDefaults()}
	return m.Steps["start"].Run(t.Context(), &step.Claim{Env: env, ID: 1, Machine: m.Name, Version: 1, Step: "start", State: json.RawMessage(`{}`), Node: node, Parent: 9})
}

func TestFaultsOfAdditions(t *testing.T) {
	t.Parallel()
	for want, nodes := range map[string][]fsm.GraphNode{
		"outcome: add[1].name: empty, want 1 to 512 bytes":    {nodeOf("a"), nodeOf("")},
		`outcome: add[1].name: "a" is the name of add[0]`:     {nodeOf("a"), nodeOf("a")},
		`outcome: add[0].name: "own" is the name of the node`: {nodeOf("own")},
		`outcome: add[0].before: node "own" has begun`:        {nodeOf("a").Before("own")},
		`outcome: add[0].after: it names node "b" twice`:      {nodeOf("a").After("b").AfterEnd("b")},
		`outcome: add[0].before: it names node "b" twice`:     {nodeOf("a").Before("b").BeforeEnd("b")},
		`outcome: add: cycle: a → b → a`:                      {nodeOf("a").After("b").Before("b")},
		"outcome: add[0].after_any: 2, at most the":           {nodeOf("a").AfterAny(2, "b")},
		"outcome: add[0].queue":                               {fsm.Node("a", cartMachine.New(cart{}).Queue(""))},
		"outcome: add[0].key: a node has a name":              {fsm.Node("a", cartMachine.New(cart{}).Key("k"))},
		"outcome: add: 41, at most 40":                        make([]fsm.GraphNode, 41),
	} {
		_, err := added(t, "own", nodes...)
		require.ErrorContains(t, err, want)
		_, ok := errors.AsType[*fsm.OutcomeError](err)
		require.True(t, ok)
	}
	_, err := added(t, "", nodeOf("a"))
	require.ErrorContains(t, err, "outcome: add: the instance is no node of a graph")
	out, err := added(t, "own", nodeOf("a").After("own", "old").Before("late"), nodeOf("b").AfterAny(1, "a", "old"))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "own", "old", "late"}, out.Add.Graph.Nodes)
	require.Equal(t, []step.Edge{{From: 2, To: 0}, {From: 3, To: 0}, {From: 0, To: 4}, {From: 0, To: 1, Needs: step.NeedsAny}, {From: 3, To: 1, Needs: step.NeedsAny}},
		out.Add.Graph.Edges)
	require.Equal(t, []int{0, 1}, out.Add.Graph.Quorum)
	require.Len(t, out.Add.Specs, 2)
}

// A node may decide which nodes come behind it; "offer" is in the graph, and waits for the added
// ones.
func ExampleNextOutcome_Add() {
	m := hidden.Machine(Loan.Define(fsm.Step("start", func(_ context.Context, v *loanVisit) (fsm.Outcome, error) {
		return v.Done("two more").Add(
			fsm.Node("second", Quote.New(2)).Before("offer"),
			fsm.Node("third", Quote.New(3)).After("second").BeforeEnd("offer")), nil
	})))

	out, err := m.Steps["start"].Run(context.Background(), &step.Claim{ID: 1, Machine: "loan", Version: 1, Step: "start", State: json.RawMessage(`1000`), Node: "decide"})
	fmt.Println(out.Add.Graph.Nodes, out.Add.Graph.Edges, err)
	// Output: [second third offer] [{0 2 0} {0 1 0} {1 2 1}] <nil>
}
