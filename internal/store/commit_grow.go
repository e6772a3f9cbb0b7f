package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A node adds nodes to its graph in the commit of its outcome. That commit locks the root first,
// and looks at the graph by a later statement. A transaction that ends a node locks the root, too,
// and so does another one that adds: so the graph stands still from the look to the COMMIT. A node
// that waits keeps waiting, a node that has ended has settled its edges, and a name that is free
// stays free. A node that is claimed meanwhile has ceased to wait before.
//
// The root waits for the added nodes, too. It cannot have woken because all have ended, since the
// node that adds has not.
//
// An edge whose origin has ended is settled at once, by the statement that settles all edges, and
// the edges of the node that adds by this very commit, behind the additions.
//
// Nothing is added to a graph whose root has ended. If the outcome were applied all the same, the
// node would stay without what it decided: a Restart of the root leaves alone what is done. So the
// node is cancelled instead, as one that still runs when its graph is over, and runs again with
// the root. The transaction that ends a root locks it. So either growRootSQL, behind the lock
// above, sees that end, or that end follows this COMMIT and finds what was added.

// growLockSQL leads a transaction that adds to a graph. As slowNodesSQL, it locks own row, root
// and the rows that wait for the own row, in one order; and the nodes that are to wait for added
// ones. $1 own row and root $2 own row $3 root $4 round $5 names
var growLockSQL = named("grow lock", `SELECT x.id FROM {s}.gen_durable x
WHERE x.id = ANY(ARRAY(SELECT unnest($1::bigint[]) UNION SELECT e.to_id FROM {s}.edges e WHERE e.from_id = $2::bigint
  UNION SELECT t.id FROM {s}.gen_durable t WHERE t.parent_id = $3::bigint AND t.parent_round = $4::bigint AND t.node = ANY($5::text[])))
ORDER BY x.id FOR NO KEY UPDATE`)

// growRootSQL looks whether a root has ended, how many nodes its graph has (NULL if its join does
// not count them), and in which queue it is. $1 root $2 round
var growRootSQL = named("grow root", `SELECT x.finished_at IS NOT NULL, CASE WHEN x.round = $2::bigint AND x.join_round >= x.round THEN x.join_size END, x.queue
FROM {s}.gen_durable x WHERE x.id = $1::bigint`)

// growNodesSQL looks at the nodes of these names: what they are, whether they have ended, whether
// they wait, and whether they never will run. $1 root $2 round $3 names
var growNodesSQL = named("grow nodes", `SELECT x.id, x.node, x.fsm, x.joined IS NOT NULL, `+waitingNode+`,
  x.status = 'failed' OR x.visit = 0 AND coalesce(x.join_failed > 0, false)
FROM {s}.gen_durable x WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint AND x.node = ANY($3::text[])`)

// growEdgesSQL looks which edges are there. None is added, and none of a node that has not ended
// is deleted, while the root is locked. $1 from $2 to
var growEdgesSQL = named("grow edges", `SELECT u.f, u.t FROM unnest($1::bigint[], $2::bigint[]) AS u(f, t)
WHERE EXISTS (SELECT FROM {s}.edges e WHERE e.from_id = u.f AND e.to_id = u.t OFFSET 0)`)

// growFenceSQL looks whether the claim still has the outcome's own row, which is locked. It goes
// before the cancel of a node whose root has ended, and behind additions that do not fit the graph:
// an earlier try, whose COMMIT got no answer, may have taken effect since anyone looked, and what
// it added may have run. Then the outcome is stale, and Resolve says that it was applied. $1 id
// $2 token $3 visit $4 worker
var growFenceSQL = named("grow fence", `SELECT EXISTS (SELECT FROM {s}.gen_durable g WHERE g.id = $1::bigint AND `+visitFence("$2::bigint", "$3::bigint")+`)`)

// awaitMoreSQL lets nodes wait for more edges. $1 ids $2 how many
var awaitMoreSQL = named("await more", `UPDATE {s}.gen_durable p SET children_pending = p.children_pending + u.n
FROM unnest($1::bigint[], $2::int[]) AS u(id, n)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id AND `+waitingNode+` FOR NO KEY UPDATE) l
WHERE p.ctid = l.tid`)

// growSQL lets a root wait for more nodes. One that does not wait any more goes by its rows, should
// it wait again: see rejoinSQL. $1 root $2 round $3 how many
var growSQL = named("grow", `UPDATE {s}.gen_durable p SET children_pending = p.children_pending + $3::int,
  join_size = CASE WHEN p.join_round >= p.round THEN p.join_size + $3::int ELSE p.join_size END
WHERE p.id = $1::bigint AND p.round = $2::bigint AND p.status = 'awaiting_children'`)

// reachSQL lists the edges that lie behind nodes, however far. UNION takes each node once. $1 nodes
var reachSQL = named("reach", `WITH RECURSIVE r(id) AS (
  SELECT unnest($1::bigint[]) UNION SELECT e.to_id FROM r CROSS JOIN LATERAL (SELECT x.to_id FROM {s}.edges x WHERE x.from_id = r.id OFFSET 0) e)
SELECT f.node, t.node FROM r CROSS JOIN LATERAL (SELECT x.* FROM {s}.edges x WHERE x.from_id = r.id OFFSET 0) e
CROSS JOIN LATERAL (SELECT x.node FROM {s}.gen_durable x WHERE x.id = e.from_id OFFSET 0) f
CROSS JOIN LATERAL (SELECT x.node FROM {s}.gen_durable x WHERE x.id = e.to_id OFFSET 0) t`)

// growth holds the additions of an outcome, which is alone in its batch.
type growth struct {
	*step.Additions

	claim *step.Claim
	own   bool // in its step's own transaction
	over  bool // the root has ended, or is gone: nothing is added
	size  *int32
	queue string            // the root's
	known map[string]there  // the nodes of these names that the graph has
	led   map[[2]int64]bool // edges that lead to nodes which have begun, and are there

	fresh *graph              // the new ones
	at    []int               // the place of each of fresh among Graph.Nodes
	ids   map[uuid.UUID]int64 // of fresh, once inserted
}

// there is a node that was there before.
type there struct {
	id                 int64
	machine            string
	ended, waits, lost bool // lost: it has failed, or is about to be skipped
}

// commitGrowing sends an outcome that adds nodes, up to its COMMIT.
func (s *Store) commitGrowing(send send, b *batch, out *Committed) error {
	stmts, err := s.grow(send, b, out)
	if err != nil || b.growth.over {
		return err
	}
	if stmts = append(stmts, s.settle(b, out)...); len(stmts) == 0 {
		return nil
	}
	return send(stmts...)
}

// grow sends the statements of an outcome that adds nodes, up to those that settle. It returns what
// is to be sent before them.
func (s *Store) grow(send send, b *batch, out *Committed) ([]entpgx.Stmt, error) {
	g := b.growth
	if err := s.lookAt(send, g); err != nil {
		return nil, err
	}
	if g.over && g.own { // what the step has written is to be undone before: see Transact
		return nil, nil
	}
	if g.over {
		return nil, s.overtaken(send, b, out)
	}
	if from, to := g.begun(); len(from) > 0 {
		if err := send(s.stmt(growEdgesSQL, g.readLed, from, to)); err != nil {
			return nil, err
		}
	}
	if err := g.fit(); err != nil {
		if mine, lost := s.stillMine(send, b); lost != nil || !mine {
			return nil, lost
		}
		return nil, err
	}
	b.addChildren(&step.Claim{ID: g.claim.Parent, Depth: g.claim.Depth - 1}, g.newcomers())
	stmts := s.outcomes(b, out)
	if b.spawn.len() > 0 {
		stmts = append(stmts, s.addNodes(&b.spawn, b.mark, g))
	}
	for _, p := range b.later {
		if err := send(stmts...); err != nil {
			return nil, err
		}
		var more specs
		more.addChildren(p)
		stmts = []entpgx.Stmt{s.addNodes(&more, b.mark, g)}
	}
	if err := send(stmts...); err != nil || !out.Applied[g.claim.ID] {
		return nil, err
	}
	return s.connect(send, b, g, out)
}

// lookAt locks what the additions depend on, and looks at it.
func (s *Store) lookAt(send send, g *growth) error {
	c := g.claim
	var targets []string
	for _, e := range g.Graph.Edges {
		if e.To >= len(g.Specs) {
			targets = append(targets, g.Graph.Nodes[e.To])
		}
	}
	g.over, g.known = true, map[string]there{}
	return send(
		s.stmt(growLockSQL, nil, []int64{c.ID, c.Parent}, c.ID, c.Parent, c.ParentRound, targets),
		s.stmt(growRootSQL, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&g.over, &g.size, &g.queue}, func() error { return nil })
			return err
		}, c.Parent, c.ParentRound),
		s.stmt(growNodesSQL, func(rows pgx.Rows) error {
			var name string
			var n there
			_, err := pgx.ForEachRow(rows, []any{&n.id, &name, &n.machine, &n.ended, &n.waits, &n.lost}, func() error {
				g.known[name] = n
				return nil
			})
			return err
		}, c.Parent, c.ParentRound, g.Graph.Nodes),
	)
}

// begun returns the edges between nodes that are there, to ones that have begun. Where the decision
// runs again, after a restart maybe, it has led them there itself, and they have had their effect.
func (g *growth) begun() (from, to []int64) {
	for _, e := range g.Graph.Edges {
		origin, target := g.known[g.Graph.Nodes[e.From]], g.known[g.Graph.Nodes[e.To]]
		if e.To >= len(g.Specs) && origin.id != 0 && target.id != 0 && !target.waits && !target.lost {
			from, to = append(from, origin.id), append(to, target.id)
		}
	}
	return from, to
}

func (g *growth) readLed(rows pgx.Rows) error {
	g.led = map[[2]int64]bool{}
	var e [2]int64
	_, err := pgx.ForEachRow(rows, []any{&e[0], &e[1]}, func() error { g.led[e] = true; return nil })
	return err
}

// fit compares the additions with the graph as it is.
func (g *growth) fit() error {
	fault := func(i int, field string, text string, args ...any) error {
		return &step.AddError{Field: fmt.Sprintf("add[%d].%s", i, field), Err: fmt.Errorf(text, args...)}
	}
	more := 0
	for i := range g.Specs {
		name := g.Graph.Nodes[i]
		known, taken := g.known[name]
		if !taken {
			more++
		} else if known.machine != g.Specs[i].Machine {
			return fault(i, "name", "%.80q is the name of a node of machine %q: give the new node another", name, known.machine)
		}
	}
	if g.size != nil && more > 0 && int(*g.size)+more > g.Most {
		return &step.AddError{Field: "add", Err: fmt.Errorf("%d new nodes beside the graph's %d, at most %d in all", more, *g.size, g.Most)}
	}
	for _, e := range g.Graph.Edges {
		from, to := g.Graph.Nodes[e.From], g.Graph.Nodes[e.To]
		if _, there := g.known[from]; !there && e.From >= len(g.Specs) {
			return fault(e.To, "after", "node %.80q is not in the graph", from)
		}
		if e.To < len(g.Specs) {
			continue
		}
		switch known, there := g.known[to]; {
		case !there:
			return fault(e.From, "before", "node %.80q is not in the graph", to)
		case !known.waits && !known.lost && !g.led[[2]int64{g.known[from].id, known.id}]:
			return fault(e.From, "before", "node %.80q has begun", to)
		}
	}
	return nil
}

// isNew reports whether the i-th name is of a node to insert.
func (g *growth) isNew(i int) bool {
	if i >= len(g.Specs) {
		return false
	}
	_, taken := g.known[g.Graph.Nodes[i]]
	return !taken
}

// newcomers returns the nodes to insert, in the root's queue unless they have another, and notes
// how many edges each waits for.
func (g *growth) newcomers() []step.Spec {
	place, o := map[int]int{}, &step.Commit{Graph: &step.Graph{}}
	for i := range g.Specs {
		if g.Specs[i].OfRoot { // Committed.Runnable looks at it, too
			g.Specs[i].Queue = g.queue
		}
		if !g.isNew(i) {
			continue
		}
		place[i], g.at = len(o.Spawn), append(g.at, i)
		o.Spawn, o.Graph.Nodes = append(o.Spawn, g.Specs[i]), append(o.Graph.Nodes, g.Graph.Nodes[i])
		if g.Graph.Quorum != nil {
			o.Graph.Quorum = append(o.Graph.Quorum, g.Graph.Quorum[i])
		}
	}
	for _, e := range g.Graph.Edges {
		if to, ok := place[e.To]; ok {
			o.Graph.Edges = append(o.Graph.Edges, step.Edge{To: to, Needs: e.Needs})
		}
	}
	g.fresh, g.ids = newGraph(o), make(map[uuid.UUID]int64, len(o.Spawn))
	return o.Spawn
}

// stillMine asks growFenceSQL.
func (s *Store) stillMine(send send, b *batch) (mine bool, err error) {
	c := b.growth.claim
	err = send(s.stmt(growFenceSQL, readOne(&mine), c.ID, c.Token, c.Visit, b.worker))
	return mine, err
}

// OverMark returns the mark under which an attempt to commit an outcome cancels its node, since
// the graph to which that adds is over. It is not the mark of the attempt: the outcome is not
// applied, and a later look finds it stale.
func OverMark(mark string) string { return uuid.NewSHA1(uuid.Nil, []byte(mark)).String() }

// overtaken cancels the node that adds, whose graph is over, as CancelRest cancels what still runs
// then. Nodes that wait for it go on, to be skipped. growLockSQL has locked all rows that this
// changes. The next of its partition key is left to Promote: if Postgres refuses to change that
// one, it is no fault of the outcome's.
func (s *Store) overtaken(send send, b *batch, out *Committed) error {
	if mine, err := s.stillMine(send, b); err != nil || !mine {
		return err
	}
	c, mark := b.growth.claim, OverMark(b.mark)
	ids, keys := []int64{c.ID}, []string(nil)
	var lost lostClaims
	if c.PartitionKey != "" {
		keys = []string{c.PartitionKey}
		lost.add(c.PartitionKey, b.worker, c.Token)
	}
	var cancelled []int64
	stmts := append(s.noted(&lost), s.stmt(loseSQL, readIDs(&cancelled), ids, mark))
	if s.recording.Load() {
		stmts = append(stmts, s.stmt(loseRecordedSQL, nil, ids, mark, []string{b.worker}))
	}
	var p Promotion
	err := s.follow(send, &joiners{ids, c.ParentRound < 0}, ids, keys, mark, false, &p, stmts...)
	out.Queues, out.Missed, out.Rest, out.Skips = append(out.Queues, p.Queues...), append(out.Missed, p.Missed...), true, out.Skips || p.Skips
	return err
}

// overtakenApart is overtaken in a separate transaction, after the step's was rolled back. A
// Restart in between may have let the graph go on: then the step is to run again.
func (s *Store) overtakenApart(ctx context.Context, conn *pgxpool.Conn, lock string, b *batch, out *Committed) error {
	b.growth.own = false
	return s.interactiveOn(ctx, conn, lock, func(send send) ([]entpgx.Stmt, error) {
		switch err := s.lookAt(send, b.growth); {
		case err != nil:
			return nil, err
		case !b.growth.over:
			return nil, uncommittedError{errors.New("the graph to which the outcome adds nodes had ended, and was restarted meanwhile")}
		}
		return nil, s.overtaken(send, b, out)
	})
}

func (s *Store) addNodes(c *specs, mark string, g *growth) entpgx.Stmt {
	text, args := addNodesForms.of(c, append(g.fresh.args(c, mark), g.claim.ID)...)
	return s.stmt(text, readFresh(g.ids), args...)
}

// connect inserts the edges, lets root and nodes wait for them, and looks for cycles. It returns
// the statements that are left to send.
func (s *Store) connect(send send, b *batch, g *growth, out *Committed) ([]entpgx.Stmt, error) {
	id := make([]int64, len(g.Graph.Nodes))
	for i, name := range g.Graph.Nodes {
		id[i] = g.known[name].id
	}
	for i, at := range g.at {
		id[at] = g.ids[g.fresh.uids[i]]
	}
	e := g.sort(id)
	var stmts []entpgx.Stmt
	if len(e.fresh.from) > 0 {
		stmts = append(stmts, s.stmt(edgesSQL, nil, e.fresh.from, e.fresh.to, e.fresh.needs))
	}
	if len(e.old.from) > 0 {
		more := map[int64]int32{}
		behind := newReach()
		stmts = append(stmts, s.stmt(addEdgesSQL, e.read(more), e.old.from, e.old.to, e.old.needs))
		if e.back {
			stmts = append(stmts, s.stmt(reachSQL, behind.read, e.old.to))
		}
		if err := send(stmts...); err != nil {
			return nil, err
		}
		if err := behind.acyclic(); err != nil {
			return nil, err
		}
		ids := slices.Sorted(maps.Keys(more))
		counts := make([]int32, len(ids))
		for i, id := range ids {
			counts[i] = more[id]
		}
		stmts = []entpgx.Stmt{s.stmt(awaitMoreSQL, nil, ids, counts)}
	}
	if n := len(g.ids); n > 0 {
		stmts = append(stmts, s.stmt(growSQL, nil, g.claim.Parent, g.claim.ParentRound, int32(n))) //nolint:gosec // bounded by the limits
	}
	if len(e.ended.from) > 0 {
		stmts = append(stmts, s.stmt(settleAddedSQL, readSettled(&out.Queues, &out.Skips), e.ended.from, b.mark, e.ended.to))
	}
	return stmts, nil
}

// addedEdges holds the edges of additions.
type addedEdges struct {
	fresh, old edgeColumns    // to new nodes, to nodes that were there
	ended      edgeColumns    // those of both whose origins had ended
	over       map[int64]bool // these origins
	back       bool           // one leads from a node that was there
}

// sort sorts the edges by the statement that handles them. Edges to a node that does not wait any
// more are left out.
func (g *growth) sort(id []int64) *addedEdges {
	out := &addedEdges{over: map[int64]bool{}}
	for _, e := range g.Graph.Edges {
		origin, there := g.known[g.Graph.Nodes[e.From]]
		if origin.ended {
			out.over[origin.id] = true
		}
		switch {
		case g.isNew(e.To):
			if out.fresh.add(id[e.From], id[e.To], e.Needs); origin.ended {
				out.ended.add(id[e.From], id[e.To], e.Needs)
			}
		case e.To >= len(g.Specs) && g.known[g.Graph.Nodes[e.To]].waits:
			out.old.add(id[e.From], id[e.To], e.Needs)
		}
		out.back = out.back || there
	}
	return out
}

// read reads the edges to nodes that were there: those that there have not been before.
func (e *addedEdges) read(more map[int64]int32) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var from, to int64
		_, err := pgx.ForEachRow(rows, []any{&from, &to}, func() error {
			if more[to]++; e.over[from] {
				e.ended.add(from, to, 0)
			}
			return nil
		})
		return err
	}
}

// edgeColumns holds edges as the columns of a statement.
type edgeColumns struct {
	from, to []int64
	needs    []int16
}

func (c *edgeColumns) add(from, to int64, needs step.Need) {
	c.from, c.to, c.needs = append(c.from, from), append(c.to, to), append(c.needs, int16(needs))
}

// reach is the set of nodes behind those to which this transaction has led edges. Without an edge
// from a node that was there, none of it can lie behind itself: nothing leads to a new node. A
// node that has begun or ended waits for nothing now, but a restart may have let nodes wait again
// before which it stands, and the next one would let all of them wait for themselves.
type reach struct {
	step.Graph

	index map[string]int
}

func newReach() *reach { return &reach{index: map[string]int{}} }

func (r *reach) place(name string) int {
	i, known := r.index[name]
	if !known {
		i = len(r.Nodes)
		r.index[name], r.Nodes = i, append(r.Nodes, name)
	}
	return i
}

func (r *reach) read(rows pgx.Rows) error {
	var from, to string
	_, err := pgx.ForEachRow(rows, []any{&from, &to}, func() error {
		r.Edges = append(r.Edges, step.Edge{From: r.place(from), To: r.place(to)})
		return nil
	})
	return err
}

// acyclic returns a step.AddError if a node lies behind itself.
func (r *reach) acyclic() error {
	if path := r.Cycle(); path != "" {
		return &step.AddError{Field: "add", Err: errors.New("cycle: " + path)}
	}
	return nil
}
