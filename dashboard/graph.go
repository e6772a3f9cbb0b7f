package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/fsm"
)

const (
	maxGraphRows = 500 // of a graph that are listed
	maxBlockers  = 50  // failed nodes of which the page says what they block
)

// graphBody is the newest graph that an instance has made.
type graphBody struct {
	ID       fsm.ID
	Graph    engine.GraphStatus
	Figure   *figure
	Rows     []nodeRow
	Rest     int // nodes that are not listed
	Counts   []statusCount
	Failed   int64
	Restart  bool     // what has failed may be restarted by whoever looks
	Critical []string // the longest chain of nodes that have not ended
	Mermaid  string
	DOT      string
	Hidden   bool // the access does not cover all nodes
}

// nodeRow is a node, with what it comes after.
type nodeRow struct {
	engine.NodeStatus

	After    []engine.GraphEdge
	Critical bool
	Blocks   int // nodes behind a failed one that are not done
}

func (s *server) graph(r *http.Request) (string, *page, error) {
	id, err := idOf(r)
	if err != nil {
		return "", nil, err
	}
	b := &graphBody{ID: id}
	if err := s.drawGraph(r.Context(), b); err != nil {
		return "", nil, err
	}
	return "graph", &page{Title: fmt.Sprintf("Graph of %d", id), Section: "instances", Refresh: 1, Body: b}, nil
}

// drawGraph reads and draws a graph that the access of ctx may see.
func (s *server) drawGraph(ctx context.Context, b *graphBody) (err error) {
	if !accessOf(ctx).everywhere() {
		if _, err := s.row(ctx, b.ID); err != nil {
			return err
		}
	}
	at, err := s.home(ctx, b.ID)
	if err != nil {
		return err
	}
	b.Graph, err = light(ctx, s, at, fmt.Sprintf("graph %d", b.ID), func(ctx context.Context) (engine.GraphStatus, error) { return at.engine.Graph(ctx, b.ID) })
	if err != nil {
		return err
	}
	if b.Hidden, err = s.veiled(ctx, at, &b.Graph); b.Hidden || err != nil {
		b.Graph = engine.GraphStatus{}
		return err
	}
	g := &b.Graph
	after, behind := map[string][]engine.GraphEdge{}, map[string][]string{}
	for _, e := range g.Edges {
		after[e.To] = append(after[e.To], e)
		behind[e.From] = append(behind[e.From], e.To)
	}
	status, count := map[string]fsm.Status{}, map[fsm.Status]int64{}
	d := engine.Drawing{Machine: g.Machine, Version: g.Version, Stored: true}
	for _, n := range g.Nodes {
		status[n.Name] = n.Status
		count[n.Status]++
		d.Graph.Steps = append(d.Graph.Steps, fsm.DiagramStep{Name: n.Name, To: behind[n.Name]})
		d.Steps = append(d.Steps, engine.StepCounts{Step: n.Name, Defined: true, Counts: map[fsm.Status]int64{n.Status: 1}})
	}
	for _, one := range statuses {
		if count[one] > 0 {
			b.Counts = append(b.Counts, statusCount{one, count[one]})
		}
	}
	if b.Failed = count[fsm.StatusFailed]; b.Failed > 0 && accessOf(ctx).Level >= Operate {
		root, err := s.row(ctx, b.ID)
		if err != nil {
			return err
		}
		b.Restart = restarts(root)
	}
	b.Critical = critical(g.Nodes, behind)
	blockers := 0
	for _, n := range g.Nodes[:min(len(g.Nodes), maxGraphRows)] {
		row := nodeRow{NodeStatus: n, After: after[n.Name], Critical: slices.Contains(b.Critical, n.Name)}
		if n.Status == fsm.StatusFailed && blockers < maxBlockers {
			blockers++
			row.Blocks = blocked(n.Name, behind, status)
		}
		b.Rows = append(b.Rows, row)
	}
	b.Rest = len(g.Nodes) - len(b.Rows)
	if b.Figure = draw(d, nil); b.Figure != nil {
		ids := map[string]fsm.ID{}
		for _, n := range g.Nodes {
			ids[n.Name] = n.ID
		}
		for n := range b.Figure.Boxes {
			box := &b.Figure.Boxes[n]
			box.Initial, box.Path = false, fmt.Sprintf("instances/%d", ids[box.Step])
		}
		b.Mermaid, b.DOT = g.Mermaid(), g.DOT()
	}
	return nil
}

// veiled reports whether the access of ctx covers some nodes of a graph only. Then nothing of the
// graph is shown: its edges would tell of the others.
func (s *server) veiled(ctx context.Context, at *site, g *engine.GraphStatus) (bool, error) {
	if accessOf(ctx).everywhere() {
		return false, nil
	}
	which, err := within(ctx)
	if err != nil {
		return true, err
	}
	ids, err := turned(ctx, at.turns.light, at.engine.Ent().Instance.Query().Where(append(which, instance.ParentID(g.Root))...).IDs)
	seen := covered{}
	for _, id := range ids {
		seen[id] = true
	}
	return slices.ContainsFunc(g.Nodes, func(n engine.NodeStatus) bool { return !seen.has(n.ID) }), err
}

// critical returns the longest chain of nodes that have not ended: the rest takes at least that
// many nodes, one after the other. Edges make no circle.
func critical(nodes []engine.NodeStatus, behind map[string][]string) (chain []string) {
	live := map[string]bool{}
	for _, n := range nodes {
		live[n.Name] = !n.Status.Terminal()
	}
	long, next := map[string]int{}, map[string]string{}
	var walk func(name string) int
	walk = func(name string) int {
		if n, known := long[name]; known {
			return n
		}
		best := 0
		for _, to := range behind[name] {
			if live[to] && walk(to) > best {
				best, next[name] = walk(to), to
			}
		}
		long[name] = best + 1
		return long[name]
	}
	first := ""
	for _, n := range nodes {
		if live[n.Name] && (first == "" || walk(n.Name) > long[first]) {
			walk(n.Name)
			first = n.Name
		}
	}
	for name := first; name != ""; name = next[name] {
		chain = append(chain, name)
	}
	return chain
}

// blocked counts the nodes behind one that are not done.
func blocked(name string, behind map[string][]string, status map[string]fsm.Status) int {
	seen, n := map[string]bool{name: true}, 0
	for todo := []string{name}; len(todo) > 0; {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, to := range behind[last] {
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
				if status[to] != fsm.StatusDone {
					n++
				}
			}
		}
	}
	return n
}
