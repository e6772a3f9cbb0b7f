package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/internal/step"
)

// GraphNode is a node of a graph: an instance that begins when what it waits for has ended. [Node]
// makes one; its methods return a changed copy.
type GraphNode struct {
	name  string
	spec  Spec
	edges []nodeEdge
	ahead []nodeEdge // of Before: from is the node that waits

	quorum int  // of the edges of AfterAny
	any    bool // AfterAny was called
	twice  bool // it was called again
}

type nodeEdge struct {
	from  string
	needs step.Need
}

// Node describes a node of a graph, for [Visit.ScheduleGraph]. The name is unique in the graph, 1
// to 512 bytes of UTF-8. The spec may have anything but a correlation key. A Delay, a time or a
// deadline of it counts from the commit that makes the graph. If neither the spec nor its machine
// names a queue, the node is in the queue of the graph's root.
func Node(name string, spec Spec) GraphNode { return GraphNode{name: name, spec: spec} }

// After lets the node wait until these nodes are done. If one of them fails, the node is skipped:
// it fails with [FailureSkipped], and none of its steps runs.
func (n GraphNode) After(names ...string) GraphNode { return n.wait(step.NeedsDone, names) }

// AfterEnd lets the node wait until these nodes have ended, done or failed.
func (n GraphNode) AfterEnd(names ...string) GraphNode { return n.wait(step.NeedsEnd, names) }

// AfterFailure lets the node wait until these nodes have failed. If one of them is done instead,
// the node is skipped. A node that was skipped has failed, too.
func (n GraphNode) AfterFailure(names ...string) GraphNode { return n.wait(step.NeedsFailed, names) }

// AfterAny lets the node wait until k of these nodes are done, besides what the other methods say.
// If so many of them fail that k can never be done, the node is skipped. The others go on: where
// the node begins, they may still run. k is at least 1, and at most the number of names. A node has
// one AfterAny.
func (n GraphNode) AfterAny(k int, names ...string) GraphNode {
	n.twice = n.any
	n.quorum, n.any = k, true
	return n.wait(step.NeedsAny, names)
}

// Before lets these nodes wait until this node is done, besides what they wait for already.
func (n GraphNode) Before(names ...string) GraphNode { return n.precede(step.NeedsDone, names) }

// BeforeEnd lets these nodes wait until this node has ended, done or failed.
func (n GraphNode) BeforeEnd(names ...string) GraphNode { return n.precede(step.NeedsEnd, names) }

func (n GraphNode) precede(needs step.Need, names []string) GraphNode {
	n.ahead = slices.Clone(n.ahead)
	for _, name := range names {
		n.ahead = append(n.ahead, nodeEdge{name, needs})
	}
	return n
}

func (n GraphNode) wait(needs step.Need, names []string) GraphNode {
	n.edges = slices.Clone(n.edges)
	for _, name := range names {
		n.edges = append(n.edges, nodeEdge{name, needs})
	}
	return n
}

// ScheduleGraph inserts the nodes of a graph and parks the instance, which is the graph's root, all
// in one commit. A node that waits for no other begins at once, each other one when its edges are
// met: see [GraphNode.After]. A node gets what it waited for by [Visit.Upstream].
//
// The nodes are children of the root, and what ScheduleChildren says of children goes for them:
// when all have ended, skipped ones included, the root goes on at the step to, unless the methods
// of [ChildrenOutcome] let it go on earlier. The graph is over when its root has ended, whatever
// these say: then no further node begins, and those that run are cancelled.
//
// A name that is used twice, an edge from a node that is not there, and a cycle are an
// [OutcomeError], which names the cycle's path. The edges may be ten times as many as the nodes may
// be.
func (v *Visit[S, R]) ScheduleGraph(to string, state S, nodes ...GraphNode) *ChildrenOutcome {
	return v.execution().graph(to, state, nodes)
}

func (x *execution) graph(to string, state any, nodes []GraphNode) *ChildrenOutcome {
	j := &ChildrenOutcome{exec: x, to: to, state: state, nodes: slices.Clone(nodes), children: make([]Spec, len(nodes))}
	for i := range nodes {
		j.children[i] = nodes[i].spec
	}
	return j
}

// what is the name of the children in errors.
func (j *ChildrenOutcome) what() string {
	if j.nodes != nil {
		return "nodes"
	}
	return "children"
}

// edgesMost is how many edges a graph may have for each node that an outcome may have.
const edgesMost = 10

// graph returns the nodes and edges of the outcome; nil if its children are no nodes.
func (j *ChildrenOutcome) graph() (*step.Graph, error) {
	if len(j.nodes) == 0 {
		return nil, nil
	}
	g := &step.Graph{Nodes: make([]string, len(j.nodes))}
	index := make(map[string]int, len(j.nodes))
	for i, n := range j.nodes {
		if err := checkName(n.name); err != nil {
			return nil, outcomeFault(fmt.Sprintf("nodes[%d].name", i), err)
		}
		if other, taken := index[n.name]; taken {
			return nil, outcomeFault(fmt.Sprintf("nodes[%d].name", i), fmt.Errorf("%.80q is the name of nodes[%d]: give each node another", n.name, other))
		}
		g.Nodes[i], index[n.name] = n.name, i
	}
	most := edgesMost * j.exec.env.Limits.Children
	if err := connect(g, j.nodes, "nodes", most, func(name string) (int, bool) { i, known := index[name]; return i, known }); err != nil {
		return nil, err
	}
	if path := g.Cycle(); path != "" {
		return nil, outcomeFault("nodes", errors.New("cycle: "+path))
	}
	return g, nil
}

// connect adds the edges of nodes, which are the first of the graph, and their quorums. find
// returns the place of another one by its name.
func connect(g *step.Graph, nodes []GraphNode, field string, most int, find func(name string) (int, bool)) error {
	if err := quorums(g, nodes, field); err != nil {
		return err
	}
	seen := map[[2]int]bool{}
	for i, n := range nodes {
		add := func(method string, e nodeEdge, turned bool) error {
			at := fmt.Sprintf("%s[%d].%s", field, i, method)
			other, known := find(e.from)
			edge := step.Edge{From: other, To: i, Needs: e.needs}
			if turned {
				edge.From, edge.To = i, other
			}
			switch {
			case !known:
				return outcomeFault(at, fmt.Errorf("node %.80q is not in the graph", e.from))
			case seen[[2]int{edge.From, edge.To}]:
				return outcomeFault(at, fmt.Errorf("it names node %.80q twice: once is enough", e.from))
			case len(g.Edges) == most:
				return outcomeFault(at, fmt.Errorf("over %d edges in the graph", most))
			}
			seen[[2]int{edge.From, edge.To}] = true
			g.Edges = append(g.Edges, edge)
			return nil
		}
		for _, e := range n.edges {
			if err := add("after", e, false); err != nil {
				return err
			}
		}
		for _, e := range n.ahead {
			if err := add("before", e, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// quorums notes how many of its edges of AfterAny each node needs.
func quorums(g *step.Graph, nodes []GraphNode, what string) error {
	for i, n := range nodes {
		if !n.any {
			continue
		}
		of := 0
		for _, e := range n.edges {
			if e.needs == step.NeedsAny {
				of++
			}
		}
		field := fmt.Sprintf("%s[%d].after_any", what, i)
		switch {
		case n.twice:
			return outcomeFault(field, errors.New("called twice: one call takes all names"))
		case n.quorum < 1:
			return outcomeFault(field, fmt.Errorf("%d, at least 1", n.quorum))
		case n.quorum > of:
			return outcomeFault(field, fmt.Errorf("%d, at most the number of names, %d", n.quorum, of))
		}
		if g.Quorum == nil {
			g.Quorum = make([]int, len(nodes))
		}
		g.Quorum[i] = n.quorum
	}
	return nil
}

// Upstream returns the node of this name that this node has waited for, as it has ended. It reports
// false if this node has not waited for it. Only a node's first step has its upstream; pass on in
// the state what later steps need. [Machine.Upstream] returns the result typed.
func (v *Visit[S, R]) Upstream(node string) (Child[json.RawMessage], bool) {
	return upstream[json.RawMessage](v.execution(), node, nil)
}

// Upstream returns the result of a node of this machine that this node has waited for. It returns
// an [OutcomeError] if it has not waited for one of this name, a *[FailedError] if that one failed,
// a *[MachineError] if it is of another machine, and what [Child.Result] returns else.
func (m *Machine[S, R]) Upstream(v AnyVisit, node string) (result R, err error) {
	c, ok := upstream[R](v.execution(), node, &m.d)
	if !ok {
		return result, notUpstream(node)
	}
	if !m.d.ofMachine(&c.raw) {
		return result, &MachineError{ID: c.ID, Want: m.d.name, Got: c.Machine}
	}
	return c.Result()
}

func notUpstream(node string) error {
	return outcomeFault("upstream", fmt.Errorf("this node has not waited for a node %.80q", node))
}

// Upstreams returns the nodes of this machine that this node has waited for, in the order in which
// they were inserted. So a node finds what others have added for it to wait for, whose names it
// does not know.
func (m *Machine[S, R]) Upstreams(v AnyVisit) (all []Child[R]) {
	x := v.execution()
	for i := range x.claim.Upstream {
		if u := &x.claim.Upstream[i].Child; m.d.ofMachine(u) {
			all = append(all, childOf[R](x, u, &m.d))
		}
	}
	return all
}

func upstream[R any](x *execution, node string, d *declaration) (c Child[R], ok bool) {
	for i := range x.claim.Upstream {
		if u := &x.claim.Upstream[i].Child; u.Node == node {
			return childOf[R](x, u, d), true
		}
	}
	return c, false
}
