package dag

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/gendurable/gendurable/fsm"
)

// CancelRest ends an instance of the graph as soon as the value of [Graph.Return] is there, with
// that value: an answer of k of n, say. Nodes that have not ended by then are cancelled, as by
// [fsm.ChildrenOutcome.CancelRest], with everything they have spawned. If the value can not be
// there any more, the graph goes on as without CancelRest: nodes that report or undo a failure
// run. It returns the graph.
//
// The instance wakes when as many nodes are done as the value needs at least; if it is not there
// then, the instance waits for those that are still missing. Each time it reads the nodes that have
// ended. For a value that needs what [Maybe], [Failed] or [Added] say, it wakes at each end.
//
// An instance that an operator or its deadline ends before the value is there takes along what has
// not ended, too.
func (g *Graph[I, R]) CancelRest() *Graph[I, R] {
	g.cancels = true
	return g
}

// stepReturn is the step of a graph whose value is there while nodes have not ended. Its rest is
// cancelled from the commit on that leads here.
const stepReturn = "return"

// statuses has the status of each node of a graph, by name.
type statuses map[string]fsm.Status

func statusesOf(nodes []fsm.Child[json.RawMessage]) (at statuses, left int) {
	at = make(statuses, len(nodes))
	for i := range nodes {
		at[nodes[i].Node] = nodes[i].Status
		if !nodes[i].Status.Terminal() {
			left++
		}
	}
	return at, left
}

// goOn decides what a graph does at an end of nodes; nil: it ends, since nothing is left to wait
// for.
func (g *Graph[I, R]) goOn(v *fsm.Visit[I, R], p part) fsm.Outcome {
	at, left := statusesOf(v.Children())
	if left == 0 {
		return nil
	}
	if p.there(at) {
		// A time that has passed: the instance goes on at once, and the rest is cancelled.
		return v.Rejoin(stepReturn, v.State).Until(v.InsertedAt).CancelRest()
	}
	return g.wait(v.Rejoin(stepEnd, v.State), p, at, left)
}

// wait lets a graph go on when a value may be there. More nodes than are left are lacking if one
// of them has failed; an operator may still restart it. If each end counts, the end of a skipped
// node does, too: the value may look at it.
func (g *Graph[I, R]) wait(j *fsm.ChildrenOutcome, p part, at statuses, left int) *fsm.ChildrenOutcome {
	if n := min(g.lacking(p, at), left); n > 0 {
		return j.Quorum(n)
	}
	return j.Race().Quorum(left)
}

// there reports whether a value is there.
func (p part) there(at statuses) bool {
	there, some := true, 0
	look := func(s fsm.Status, n need) {
		switch n {
		case anyDone:
			if s == fsm.StatusDone {
				some++
			}
		case done:
			there = there && s == fsm.StatusDone
		case failed:
			there = there && s == fsm.StatusFailed
		case ended:
			there = there && s.Terminal()
		}
	}
	for _, s := range p.sources {
		look(at[s.node], s.need)
	}
	for from, n := range p.added {
		for name, s := range at {
			if strings.HasPrefix(name, from) {
				look(s, n)
			}
		}
	}
	return there && some >= p.quorum
}

// lacking returns how many nodes have to be done, at least, before a value is there; 0 if that
// cannot be said. It is never too many, or the graph would wait for more than its value: of the
// quorums on the way only the one counts that lacks most, since two may have the same nodes.
func (g *Graph[I, R]) lacking(p part, at statuses) int {
	if p.added != nil || slices.ContainsFunc(p.sources, func(s source) bool { return s.need == ended || s.need == failed }) {
		return 0
	}
	must, extra := map[string]bool{}, 0
	var waits []*node[I]
	var add func(of []source)
	add = func(of []source) {
		for _, s := range of {
			if s.need != done || must[s.node] || at[s.node] == fsm.StatusDone {
				continue
			}
			must[s.node] = true
			for _, n := range g.nodes {
				if n.name == s.node {
					waits = append(waits, n)
					add(n.edges)
				}
			}
		}
	}
	add(p.sources)
	quorum := func(k int, of []source) {
		for _, s := range of {
			if s.need == anyDone && (must[s.node] || at[s.node] == fsm.StatusDone) {
				k--
			}
		}
		extra = max(extra, k)
	}
	quorum(p.quorum, p.sources)
	for _, n := range waits {
		quorum(n.quorum, n.edges)
	}
	return len(must) + extra
}

var errThere = errors.New("CancelRest cancels the nodes that the graph's value does not need, and it needs none: take the value of a node")
