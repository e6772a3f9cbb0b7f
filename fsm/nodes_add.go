package fsm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/internal/step"
)

// Add adds nodes to the graph of which this instance is a node, in the commit that ends it: they
// are there exactly if that commit is. See [NextOutcome.Add].
func (e *EndOutcome[S]) Add(nodes ...GraphNode) *EndOutcome[S] {
	e.end.added = append(slices.Clip(e.end.added), nodes...)
	return e
}

// Add adds nodes to the graph of which this instance is a node, in the commit of the outcome: they
// are there exactly if that commit is. They are nodes as for [Visit.ScheduleGraph]: the graph's
// root waits for them, too. They may wait for each other and for any node of the graph, this one
// included, whether it has ended or not. By [GraphNode.Before] nodes that are there wait for them,
// unless these have begun.
//
// A name that a node of the same machine has already is that node: it stays as it is, and does not
// wait for anything more; only its Before counts. What would wait for an added node but has failed,
// or is about to be skipped, stays as it is.
//
// Nothing is added to a graph whose root has ended. The instance is cancelled then instead, as one
// that still runs when its graph is over, and nothing of the outcome takes effect. A Restart of the
// root runs it again, from the step of this outcome.
//
// An edge from or to a node that is not there, an edge to one that has begun, a name of a node of
// another machine, and a cycle are an [OutcomeError] of the step, which names the cycle's path:
// such an outcome is not committed. A graph has at most as many nodes as an outcome may have
// children (Limits.Children), added ones included.
func (t *NextOutcome) Add(nodes ...GraphNode) *NextOutcome {
	t.added = append(slices.Clip(t.added), nodes...)
	return t
}

// additions validates and encodes the nodes that an outcome adds; nil if there are none.
func (x *execution) additions(nodes []GraphNode) (*step.Additions, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	limits := x.env.Limits
	switch {
	case x.claim.Node == "":
		return nil, outcomeFault("add", errors.New("the instance is no node of a graph, and only a node adds nodes: use ScheduleGraph"))
	case len(nodes) > limits.Children:
		return nil, outcomeFault("add", fmt.Errorf("%d, at most %d", len(nodes), limits.Children))
	}
	out := &step.Additions{Most: limits.Children, Specs: make([]step.Spec, 0, len(nodes))}
	index := make(map[string]int, len(nodes))
	for i, n := range nodes {
		field := fmt.Sprintf("add[%d].name", i)
		if err := checkName(n.name); err != nil {
			return nil, outcomeFault(field, err)
		}
		if other, taken := index[n.name]; taken {
			return nil, outcomeFault(field, fmt.Errorf("%.80q is the name of add[%d]: give each node another", n.name, other))
		}
		if n.name == x.claim.Node {
			return nil, outcomeFault(field, fmt.Errorf("%.80q is the name of the node that adds it: give each node another", n.name))
		}
		index[n.name] = i
		out.Graph.Nodes = append(out.Graph.Nodes, n.name)
	}
	err := connect(&out.Graph, nodes, "add", edgesMost*limits.Children, func(name string) (int, bool) {
		i, known := index[name]
		if !known { // whether it is in the graph only the commit knows
			i = len(out.Graph.Nodes)
			index[name], out.Graph.Nodes = i, append(out.Graph.Nodes, name)
		}
		return i, true
	})
	if err != nil {
		return nil, err
	}
	for _, e := range out.Graph.Edges {
		if out.Graph.Nodes[e.To] == x.claim.Node {
			return nil, outcomeFault(fmt.Sprintf("add[%d].before", e.From), fmt.Errorf("node %.80q has begun", x.claim.Node))
		}
	}
	if path := out.Graph.Cycle(); path != "" {
		return nil, outcomeFault("add", errors.New("cycle: "+path))
	}
	size := out.Graph.Bytes()
	for i, n := range nodes {
		spec, err := x.spawned(n.spec, Spec.inRootsQueue)
		if bad, ok := errors.AsType[*SpecError](err); ok {
			return nil, outcomeFault(fmt.Sprintf("add[%d].%s", i, bad.Field), bad.Err)
		} else if err != nil {
			return nil, outcomeFault(fmt.Sprintf("add[%d]", i), err)
		}
		if spec.Key != "" {
			return nil, outcomeFault(fmt.Sprintf("add[%d].key", i), nodeKeyFault(n.spec))
		}
		if size += spec.Bytes(); size > limits.OutcomeBytes {
			return nil, outcomeFault(fmt.Sprintf("add[%d]", i), fmt.Errorf("over %d bytes together with the nodes before it: %w",
				limits.OutcomeBytes, ErrTooLarge))
		}
		out.Specs = append(out.Specs, *spec)
	}
	return out, nil
}

var errNodeKey = errors.New("a node has a name and no correlation key: if another instance held the key, the node would be missing")
