package step

import (
	"fmt"
	"slices"
	"strings"
)

// Graph makes the children of an outcome nodes of a graph: those with edges wait for others.
type Graph struct {
	Nodes []string // the name of each child of Commit.Spawn, distinct
	Edges []Edge   // at most one from a node to another; no cycle
	// Quorum is, for each node, how many of its edges with NeedsAny have to be met; 0 if it has
	// none. Nil: no node has one.
	Quorum []int
}

// Additions are nodes that a node adds to its graph in the commit of its outcome.
type Additions struct {
	Specs []Spec // the new nodes
	// Graph has the names of the new nodes, then the names of existing nodes, to and from which edges
	// lead. Each edge has a new node at one end at least. No cycle can be seen.
	Graph Graph
	Most  int // nodes that the graph may have with them
}

// Bytes returns the size of the additions as they are sent to Postgres; 0 if there are none.
func (a *Additions) Bytes() (n int) {
	if a == nil {
		return 0
	}
	for i := range a.Specs {
		n += a.Specs[i].Bytes()
	}
	return n + a.Graph.Bytes()
}

// AddError refuses additions that do not fit the graph as it is.
type AddError struct {
	Field string
	Err   error
}

// Error returns the field and its fault.
func (e *AddError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *AddError) Unwrap() error { return e.Err }

// edgeBytes is what an edge counts of Limits.OutcomeBytes.
const edgeBytes = 24

// Bytes returns the size of the graph beside its children, as it is sent to Postgres; 0 if there is
// none.
func (g *Graph) Bytes() (n int) {
	if g == nil {
		return 0
	}
	for _, name := range g.Nodes {
		n += len(name)
	}
	return n + len(g.Edges)*edgeBytes
}

// Cycle returns the path of a cycle in the graph, e.g. "a → b → a"; "" if there is none. It takes
// the nodes that wait for nothing away, then those that waited for these only, and so on. Each node
// that is left lies on a cycle, or behind one: going backwards from any of it comes to a cycle.
func (g *Graph) Cycle() string {
	waits, behind, before := make([]int, len(g.Nodes)), make([][]int, len(g.Nodes)), make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		waits[e.To]++
		behind[e.From], before[e.To] = append(behind[e.From], e.To), append(before[e.To], e.From)
	}
	var free []int
	for i, n := range waits {
		if n == 0 {
			free = append(free, i)
		}
	}
	taken := 0
	for ; taken < len(free); taken++ {
		for _, to := range behind[free[taken]] {
			if waits[to]--; waits[to] == 0 {
				free = append(free, to)
			}
		}
	}
	if taken == len(g.Nodes) {
		return ""
	}
	at := slices.IndexFunc(waits, func(n int) bool { return n > 0 })
	var walk []int
	place := map[int]int{}
	for {
		if from, met := place[at]; met {
			walk = append(walk[from:], at)
			break
		}
		place[at], walk = len(walk), append(walk, at)
		at = before[at][slices.IndexFunc(before[at], func(i int) bool { return waits[i] > 0 })]
	}
	slices.Reverse(walk)
	names := make([]string, len(walk))
	for i, n := range walk {
		names[i] = g.Nodes[n]
	}
	return pathText(names)
}

// pathText returns e.g. "a → b → a". Of a long path it leaves out the middle.
func pathText(path []string) string {
	const most = 20
	short := make([]string, 0, most+1)
	for i, name := range path {
		switch left := len(path) - i; {
		case len(path) <= most || i < most/2 || left <= most/2:
			short = append(short, fmt.Sprintf("%.80s", name))
		case i == most/2:
			short = append(short, fmt.Sprintf("(%d more)", len(path)-most/2*2))
		}
	}
	return strings.Join(short, " → ")
}

// Edge lets the node To wait for the node From. Both are indexes of Graph.Nodes.
type Edge struct {
	From, To int
	Needs    Need
}

// Need is what an edge asks of the end of its origin. The column edges.needs has these values.
type Need int16

// The needs.
const (
	NeedsDone   Need = iota // the origin is done
	NeedsEnd                // it has ended, however
	NeedsFailed             // it has failed
	NeedsAny                // it is done, or enough others of the node's quorum are
)

// Met reports whether a node with this status, which has ended, meets the need.
func (n Need) Met(status string) bool {
	return n == NeedsEnd || (n != NeedsFailed) == (status == "done")
}

// Upstream is what a node waited for.
type Upstream struct {
	Child Child // its Node is the name
	Needs Need
}

// ReleaseError refuses an outcome while a worker of a release is live that cannot serve what the
// outcome would write.
type ReleaseError struct {
	Host    string
	PID     int
	Release int32 // the worker's
	Needed  int32 // the first that can
}

// Error names the worker and both releases.
func (e *ReleaseError) Error() string {
	return fmt.Sprintf("process %d on %s is of release %d, which cannot serve this: release %d can", e.PID, e.Host, e.Release, e.Needed)
}
