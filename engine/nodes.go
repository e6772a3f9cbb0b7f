package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// GraphStatus is the newest graph that an instance has made, as it is. It is empty if the newest
// children of the instance are no nodes.
type GraphStatus struct {
	Root    fsm.ID       `json:"root"`
	Machine string       `json:"machine"` // of the root
	Version int          `json:"version"`
	Nodes   []NodeStatus `json:"nodes"` // in the order in which they were given
	Edges   []GraphEdge  `json:"edges"` // by the nodes to which they lead
}

// NodeStatus is a node of a [GraphStatus].
type NodeStatus struct {
	ID      fsm.ID      `json:"id"`
	Name    string      `json:"name"`
	Machine string      `json:"machine"`
	Version int         `json:"version"`
	Status  fsm.Status  `json:"status"`
	Failure fsm.Failure `json:"failure,omitempty"`
	Waits   int         `json:"waits"`            // the number of nodes for which it still waits
	Quorum  int         `json:"quorum,omitempty"` // so many of its edges with Any are to be met; 0: it has none, or has children of its own
}

// GraphEdge lets the node To wait for the node From.
type GraphEdge struct {
	From  string     `json:"from"`
	To    string     `json:"to"`
	Needs fsm.Status `json:"needs,omitempty"` // StatusDone or StatusFailed; "": any end
	Any   bool       `json:"any,omitempty"`   // it is one of a quorum: see NodeStatus.Quorum
}

// Graph returns the newest graph that an instance has made, by id or by correlation key, as
// [Engine.Get] finds it. [GraphStatus.Mermaid] and [GraphStatus.DOT] draw it. Edges whose origin
// the GC has deleted are gone with it.
//
// Errors: ErrNotFound.
func (e *Engine) Graph(ctx context.Context, of fsm.Target) (out GraphStatus, err error) {
	defer e.explain(ctx, toRead("gen_durable", "edges"), &err)
	root, err := e.Get(ctx, of)
	if err != nil {
		return out, err
	}
	var nodes []store.Node
	var edges []store.NodeEdge
	err = e.patiently(ctx, task{doing: "read a graph"}, func() error {
		nodes, edges, err = e.store.Graph(ctx, int64(root.ID))
		return err
	})
	if err != nil {
		return out, err
	}
	out = GraphStatus{Root: root.ID, Machine: root.Machine, Version: root.Version, Nodes: make([]NodeStatus, len(nodes)), Edges: []GraphEdge{}}
	names := make(map[int64]string, len(nodes))
	for i, n := range nodes {
		names[n.ID] = n.Name
		out.Nodes[i] = NodeStatus{ID: fsm.ID(n.ID), Name: n.Name, Machine: n.Machine, Version: n.Version, Status: fsm.Status(n.Status),
			Failure: fsm.Failure(n.Failure), Waits: n.Waits, Quorum: n.Quorum}
	}
	needs := map[step.Need]fsm.Status{step.NeedsDone: fsm.StatusDone, step.NeedsAny: fsm.StatusDone, step.NeedsFailed: fsm.StatusFailed}
	for _, one := range edges {
		if from, there := names[one.From]; there {
			out.Edges = append(out.Edges, GraphEdge{From: from, To: names[one.To], Needs: needs[step.Need(one.Needs)],
				Any: step.Need(one.Needs) == step.NeedsAny})
		}
	}
	return out, nil
}

// Mermaid returns the graph as a flowchart in Mermaid's language, with the status of each node
// beneath its name.
func (g GraphStatus) Mermaid() string { return g.drawn().Mermaid() }

// DOT returns the graph in the language of Graphviz, with the status of each node beneath its name.
func (g GraphStatus) DOT() string { return g.drawn().DOT() }

// drawn returns the graph in the form of a machine's: the nodes are its steps.
func (g GraphStatus) drawn() fsm.Diagram {
	out := fsm.Diagram{Machine: g.Machine, Version: g.Version, Steps: make([]fsm.DiagramStep, len(g.Nodes))}
	to, notes := map[string][]string{}, map[string][]string{}
	for _, e := range g.Edges {
		to[e.From] = append(to[e.From], e.To)
		if e.Needs == fsm.StatusFailed {
			notes[e.To] = append(notes[e.To], "if "+e.From+" failed")
		}
	}
	for i, n := range g.Nodes {
		if n.Quorum > 0 {
			notes[n.Name] = append(notes[n.Name], fmt.Sprintf("any %d", n.Quorum))
		}
		out.Steps[i] = fsm.DiagramStep{Name: n.Name, To: to[n.Name], Note: strings.Join(append([]string{n.state()}, notes[n.Name]...), ", ")}
	}
	return out
}

// state says how far the node is, in few words.
func (n NodeStatus) state() string {
	switch {
	case n.Waits > 0:
		return fmt.Sprintf("waits for %d", n.Waits)
	case n.Failure != "":
		return string(n.Failure)
	default:
		return string(n.Status)
	}
}
