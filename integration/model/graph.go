package model

import (
	"cmp"
	"fmt"
	"slices"
)

// Need is what an edge asks of the end of its origin.
type Need int

// The needs.
const (
	NeedsDone Need = iota
	NeedsEnd
	NeedsFailed
	NeedsAny
)

// Graph makes the children of an outcome nodes of a graph.
type Graph struct {
	Nodes []string // the name of each child
	Edges []Link   // by the places of the children
	Any   []int    // of each: how many of its edges with NeedsAny have to be met; nil: none has such
}

// Link is an edge of a graph before its nodes are inserted.
type Link struct {
	From, To int
	Needs    Need
}

// Edge lets an instance wait for another.
type Edge struct {
	From, To ID
	Needs    Need
}

// Edges lists all edges, by the ids of their ends.
func (w *World) Edges() []Edge { return slices.Clone(w.edges) }

// Before lists the edges that lead to a node, by the ids of their origins.
func (w *World) Before(id ID) (edges []Edge) {
	for _, e := range w.edges {
		if e.To == id {
			edges = append(edges, e)
		}
	}
	return edges
}

// Skips reports whether a node that is claimed must not run: an edge was not met, or its root has
// ended before it began.
func (w *World) Skips(c *Claim) bool {
	root := w.Get(c.Parent)
	over := root == nil || root.Status.Terminal()
	return c.Join.Failed > 0 || over && !c.hasBegun()
}

// Unmarked reports whether the instance bears no mark of an outcome that was applied: a node that
// gave way stays unbegun.
func (i *Instance) Unmarked(o *Outcome) bool {
	return o.Unbegun && i.Node != "" && i.Visit == 0 && !i.Begun
}

// hasBegun reports whether a node has begun: it goes on, also if nodes before it are restarted.
func (i *Instance) hasBegun() bool { return i.Attempt > 0 || i.Crashes > 0 || i.Begun }

// waitsForNodes reports whether an instance is a node that waits for others.
func (i *Instance) waitsForNodes() bool {
	return i != nil && i.Node != "" && i.Status == AwaitingChildren && i.Visit == 0
}

// HeldBehind reports whether another session holds a node that waits for this one, so that this one
// cannot end.
func (w *World) HeldBehind(id ID) bool {
	return slices.ContainsFunc(w.edges, func(e Edge) bool {
		return e.From == id && w.held[e.To] && w.Get(e.To).waitsForNodes()
	})
}

// plant makes the children of the newest round nodes.
func (w *World) plant(g *Graph, children []*Instance) {
	for n, child := range children {
		child.Node = g.Nodes[n]
	}
	for _, l := range g.Edges {
		to := children[l.To]
		to.Status = AwaitingChildren
		if l.Needs == NeedsAny {
			to.Join.Size++
		} else {
			to.Pending++
		}
		w.edges = append(w.edges, Edge{children[l.From].ID, to.ID, l.Needs})
	}
	for n, k := range g.Any {
		if k > 0 { // a quorum counts as one edge
			children[n].Join.Quorum = k
			children[n].Pending++
		}
	}
	w.sortEdges()
}

func (w *World) sortEdges() {
	slices.SortFunc(w.edges, func(a, b Edge) int {
		if a.From != b.From {
			return int(a.From - b.From)
		}
		return int(a.To - b.To)
	})
}

// settle counts the edges of nodes that have ended at once in the nodes that wait for them.
func (w *World) settle(ended ...*Instance) {
	var edges []Edge
	for _, i := range ended {
		for _, e := range w.edges {
			if e.From == i.ID {
				edges = append(edges, e)
			}
		}
	}
	w.settleEdges(edges)
}

// settleEdges counts edges of ended nodes. A node that waits goes on when it has none left, or one
// is not met. Then it is to be skipped, and no worker claims it.
func (w *World) settleEdges(edges []Edge) {
	var counted, unmet []*Instance
	quorate := map[*Instance]bool{}
	for _, e := range edges {
		from, to := w.Get(e.From), w.Get(e.To)
		if !to.waitsForNodes() {
			continue
		}
		counted = append(counted, to)
		if e.Needs == NeedsAny {
			if _, seen := quorate[to]; !seen {
				quorate[to] = to.Join.Done >= to.Join.Quorum
			}
			if to.Join.Size--; from.Status == Done {
				to.Join.Done++
			}
			continue
		}
		to.Pending--
		if e.Needs != NeedsEnd && (e.Needs == NeedsDone) != (from.Status == Done) {
			to.Join.Failed++
			unmet = append(unmet, to)
		}
	}
	for to, before := range quorate {
		switch {
		case !before && to.Join.Done >= to.Join.Quorum:
			to.Pending--
		case to.Join.Done+to.Join.Size < to.Join.Quorum:
			to.Join.Failed++
			unmet = append(unmet, to)
		}
	}
	for _, to := range counted {
		if to.Pending == 0 || slices.Contains(unmet, to) {
			to.Status, to.EligibleAt = Runnable, max(to.EligibleAt, w.Now)
		}
	}
}

// Skippable lists the nodes that a sweep skips: whatever their machine, their queue, their delay
// and their key, but none that is paused.
func (w *World) Skippable() (nodes []*Instance) {
	return w.Instances(func(i *Instance) bool { return i.toSkip() && !i.Paused && !w.stuck(i, true) })
}

// SkipsDue reports whether any node is to be skipped, also one that is held.
func (w *World) SkipsDue() bool {
	return w.first(func(i *Instance) bool { return i.toSkip() && !i.Paused }) != nil
}

// Skip fails nodes that are to be skipped, all at once: why each is skipped does not depend on how
// the others end.
func (w *World) Skip(page []*Instance) {
	texts := make([]string, len(page))
	for n, i := range page {
		texts[n] = "skipped: " + w.unmet(i)
	}
	for n, i := range page {
		text := texts[n]
		w.remember(i, "fail", text, "")
		i.Status, i.Failure, i.FinishedAt, i.LastError = Failed, "skipped", w.Now, text
		w.swept(i, i, "node.skip", text)
	}
	w.join(page...)
	w.settle(page...)
}

// unmet says why a node is skipped: by the first edge that is not met, or if there is none but of
// its quorum, by the first of that.
func (w *World) unmet(i *Instance) string {
	text := ""
	for _, e := range w.Before(i.ID) {
		from := w.Get(e.From)
		switch {
		case !from.Status.Terminal() || e.met(from):
		case e.Needs != NeedsAny:
			return fmt.Sprintf("node %q is %s", from.Node, from.Status)
		case text == "":
			text = fmt.Sprintf("too few of a quorum are done: node %q is %s", from.Node, from.Status)
		}
	}
	return cmp.Or(text, "a node that it waited for, which has been deleted since, did not end as it had to")
}

// uproot deletes the edges that lead away from an instance.
func (w *World) uproot(id ID) {
	w.edges = slices.DeleteFunc(w.edges, func(e Edge) bool { return e.From == id })
}
