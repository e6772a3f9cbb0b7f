package model

import (
	"cmp"
	"slices"
)

// Additions are nodes that a node adds to its graph when it ends.
type Additions struct {
	Specs []Spec
	// Graph has the names of the specs, then the names of existing nodes. A spec whose name a node has
	// adds nothing, and what it was to wait for does not count.
	Graph Graph
}

// Fits reports whether the additions of a current outcome fit its graph. A node that is to wait for
// an added one must not have begun, unless it has waited for it before, and nodes must not wait for
// each other. A graph that is over takes anything, and adds nothing.
func (w *World) Fits(e *Entry) bool {
	a := e.Outcome.Add
	if a == nil || w.over(&e.Claim) {
		return true
	}
	at := make([]*Instance, len(a.Graph.Nodes))
	for n, name := range a.Graph.Nodes {
		if at[n] = w.node(&e.Claim, name); at[n] == nil && n >= len(a.Specs) || at[n] != nil && n < len(a.Specs) && at[n].Machine != a.Specs[n].Machine {
			return false
		}
	}
	behind := map[string][]string{} // by the name of a node
	for _, edge := range w.edges {
		if from, to := w.Get(edge.From), w.Get(edge.To); from.Parent == e.Claim.Parent && from.ParentRound == e.Claim.ParentRound {
			behind[from.Node] = append(behind[from.Node], to.Node)
		}
	}
	for _, l := range a.Graph.Edges {
		to := at[l.To]
		switch lost := to != nil && (to.Status == Failed || to.Visit == 0 && to.Join.Failed > 0); {
		case to == nil || l.To >= len(a.Specs) && to.waitsForNodes():
			behind[a.Graph.Nodes[l.From]] = append(behind[a.Graph.Nodes[l.From]], a.Graph.Nodes[l.To])
		case l.To >= len(a.Specs) && !lost && !w.led(at[l.From], to):
			return false
		}
	}
	return !cyclic(behind)
}

// led reports whether an edge leads from a node to another one. Either may be missing.
func (w *World) led(from, to *Instance) bool {
	return from != nil && to != nil && slices.ContainsFunc(w.edges, func(e Edge) bool { return e.From == from.ID && e.To == to.ID })
}

// cyclic reports whether a node is behind itself.
func cyclic(behind map[string][]string) bool {
	for name := range behind {
		reached := slices.Clone(behind[name])
		for n := 0; n < len(reached); n++ {
			if reached[n] == name {
				return true
			}
			for _, next := range behind[reached[n]] {
				if !slices.Contains(reached, next) {
					reached = append(reached, next)
				}
			}
		}
	}
	return false
}

// over reports whether the graph of a claim has ended with its root.
func (w *World) over(c *Claim) bool {
	root := w.Get(c.Parent)
	return root == nil || root.Status.Terminal()
}

// overtaken cancels a node that adds to its graph, which is over, as one that still runs then.
func (w *World) overtaken(i *Instance) {
	was := *i
	w.lose(i)
	i.unclaim()
	w.remember(i, "cancel", lostText, "")
	i.Status, i.Failure, i.FinishedAt, i.LastError, i.Deadline, i.Stray = Failed, "cancelled", w.Now, lostText, Never, false
	i.Losers = w.liveRounds(i.ID)
	w.swept(&was, i, "join.cancel", lostText)
	w.join(i)
	w.settle(i)
}

// node returns the node of a name in the graph of a claim.
func (w *World) node(c *Claim, name string) *Instance {
	return w.first(func(i *Instance) bool {
		return i.Parent == c.Parent && i.ParentRound == c.ParentRound && i.Node == name
	})
}

// grow adds the nodes of an outcome to its graph. The root waits for them, too, if it waits. Edges
// of ended nodes are settled at once.
func (w *World) grow(_ *Instance, e *Entry) {
	a := e.Outcome.Add
	if a == nil {
		return
	}
	root := w.Get(e.Claim.Parent)
	at, fresh := make([]*Instance, len(a.Graph.Nodes)), make([]bool, len(a.Graph.Nodes))
	for n, name := range a.Graph.Nodes {
		at[n] = w.node(&e.Claim, name)
	}
	more := 0
	for n := range a.Specs {
		if at[n] != nil {
			continue
		}
		at[n], fresh[n] = w.Get(w.insert(&a.Specs[n], root).ID), true
		at[n].Queue = cmp.Or(at[n].Queue, root.Queue)
		at[n].Node, at[n].ParentRound = a.Graph.Nodes[n], e.Claim.ParentRound
		more++
	}
	if root.Status == AwaitingChildren && root.Round == e.Claim.ParentRound {
		if root.Pending += more; root.Join.Round >= root.Round {
			root.Join.Size += more
		}
	}
	var ended []Edge
	for _, l := range a.Graph.Edges {
		from, to := at[l.From], at[l.To]
		edge := Edge{from.ID, to.ID, l.Needs}
		if !fresh[l.To] && (l.To < len(a.Specs) || !to.waitsForNodes()) || slices.ContainsFunc(w.edges, func(o Edge) bool { return o.From == edge.From && o.To == edge.To }) {
			continue
		}
		to.Status = AwaitingChildren
		to.Pending++
		if w.edges = append(w.edges, edge); from.Joined && from.ID != e.Claim.ID {
			ended = append(ended, edge)
		}
	}
	w.sortEdges()
	w.settleEdges(ended)
}
