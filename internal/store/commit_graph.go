package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A graph is a round of children that wait for each other by the table edges. Its root, their
// parent, is its lock: a transaction that ends a node locks the root first, as for a child's
// parent. So the ends of nodes of one graph are in order, and each settles its edges once: by its
// mark, in the commit that ends it.
//
// A node that waits is in awaiting_children, at visit 0, with its edges to come in
// children_pending. join_failed counts the edges that are not met. The first of these ends its
// wait: it is runnable then, in a lane where no claim finds it, until Skip ends it. So what is
// skipped is settled level by level, in bounded slices, however large the graph is.
//
// The edges of a quorum count as one edge. It is met when wake_done of them are, and not met when
// so many can never be. join_done counts those that are met, join_size those to come.

// waitingNode is the condition that the row x waits for nodes, and not for its children. It takes
// no part in the choice of an index: a plan that was made while there were no graphs would take the
// index of nodes for empty, and go through all of it for every edge.
const waitingNode = `coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false)`

// begun is the condition that the row x, a node at its first visit that does not execute, has
// begun: a restart of a node before it does not let it wait again. An outcome that has kept the
// visit has left its mark, a release of a step that was called has left begunText, and a reap has
// counted the crash. A Restart that decides the node anew takes the mark away. So a claim that was
// given back before the step was called does not count, nor does a node that gave way
// (step.Commit's Unbegun), and no other row pays for a column or a write.
const begun = `(x.attempt > 0 OR x.crashes > 0 OR x.commit_id IS NOT NULL)`

// begunText is the mark of no commit.
const begunText = `'00000000-0000-0000-0000-000000000000'::uuid`

// begunNodes returns the claims of nodes at their first visit whose step has been called.
func begunNodes(claims []*step.Claim) (ids []int64) {
	for _, c := range claims {
		if c.Begun && c.Node != "" && c.Visit == 0 {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// heldText lists, of some nodes, those for which a row waits that another transaction has locked.
// It locks the others, so that settleText has them. A row that has ceased to wait since the
// statement began counts as held: the next try sees it as it is.
func heldText(nodes string) string {
	return `SELECT n.id FROM unnest(` + nodes + `) AS n(id)
  CROSS JOIN LATERAL (SELECT e.to_id FROM {s}.edges e WHERE e.from_id = n.id OFFSET 0) e
  CROSS JOIN LATERAL (SELECT ` + waitingNode + ` AS waits FROM {s}.gen_durable x WHERE x.id = e.to_id OFFSET 0) t
  LEFT JOIN LATERAL (SELECT x.id FROM {s}.gen_durable x WHERE x.id = e.to_id AND ` + waitingNode + ` FOR NO KEY UPDATE SKIP LOCKED) l ON true
  WHERE t.waits AND l.id IS NULL`
}

// slowNodesSQL is slowSQL for a batch that ends nodes: it also locks what waits for them. An edge
// that is newer than its snapshot was added under the root's lock, for which this statement waited;
// settleEdgesSQL meets it, and waits for its row. $1 rows $2 nodes
var slowNodesSQL = named("commit slow nodes", `SELECT x.id FROM {s}.gen_durable x
WHERE x.id = ANY(ARRAY(SELECT unnest($1::bigint[]) UNION SELECT e.to_id FROM {s}.edges e WHERE e.from_id = ANY($2::bigint[])))
ORDER BY x.id FOR NO KEY UPDATE`)

var (
	settleEdgesSQL = named("settle edges", settleText(false))
	settleAddedSQL = named("settle added", settleText(true))
)

// settleText settles the edges of ended nodes, with one aggregated update per row that waits.
// It counts a node only if this commit ended it (joined = mark, so exactly once), and only in a row
// that still waits. Such a row goes on when its last edge is met, or to be skipped when the first
// one is not. Then it keeps its delay, for a Restart that lets it wait again. It returns the queue
// of each row that goes on, and whether it is to be skipped. The rows have been locked since the
// update, and the roots as well.
//
// Or it settles added edges whose origins had ended before this commit: $1 has these, and $3 the
// nodes to which the edges lead. $1 ended nodes $2 mark
func settleText(added bool) string {
	return `WITH woken AS (
  UPDATE {s}.gen_durable p SET children_pending = greatest(p.children_pending - d.n - l.enough, 0),
    join_failed = coalesce(p.join_failed, 0) + d.n - d.ok + l.lost, join_done = p.join_done + d.yes, join_size = p.join_size - d.more,
    status = CASE WHEN l.wakes THEN 'runnable' ELSE p.status END,
    eligible_at = CASE WHEN l.wakes THEN greatest(p.eligible_at, (SELECT clock_timestamp())) ELSE p.eligible_at END,
    updated_at = CASE WHEN l.wakes THEN (SELECT clock_timestamp()) ELSE p.updated_at END,
    pick_lane = CASE WHEN d.ok < d.n OR l.lost > 0 THEN {lane skip} ELSE {lane front} END
  FROM (SELECT e.to_id, count(*) FILTER (WHERE e.needs < {needs any})::int AS n,
      count(*) FILTER (WHERE e.needs = {needs end} OR e.needs < {needs any} AND (e.needs = {needs done}) = (k.status = 'done'))::int AS ok,
      count(*) FILTER (WHERE e.needs = {needs any})::int AS more, count(*) FILTER (WHERE e.needs = {needs any} AND k.status = 'done')::int AS yes
    FROM unnest($1::bigint[]` + when(added, `, $3::bigint[]`) + `) AS u(id` + when(added, `, to_id`) + `)
    CROSS JOIN LATERAL (SELECT x.joined, x.status FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT e.to_id, e.needs FROM {s}.edges e WHERE e.from_id = u.id` + when(added, ` AND e.to_id = u.to_id`) + ` OFFSET 0) e
    WHERE k.joined ` + either(added, `<>`, `=`) + ` $2::uuid GROUP BY 1) d
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, ` + quorumMet + `::int AS enough, ` + quorumLost + `::int AS lost,
      x.children_pending <= d.n + ` + quorumMet + `::int OR d.ok < d.n OR ` + quorumLost + ` AS wakes
    FROM {s}.gen_durable x WHERE x.id = d.to_id AND ` + waitingNode + ` FOR NO KEY UPDATE) l
  WHERE p.ctid = l.tid
  RETURNING p.queue, p.status, p.pick_lane)
SELECT queue, pick_lane = {lane skip} FROM woken WHERE status = 'runnable'`
}

// readSettled notes the queues of nodes that go on, and whether any is to be skipped.
func readSettled(into *[]string, skips *bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var queue string
		var skip bool
		_, err := pgx.ForEachRow(rows, []any{&queue, &skip}, func() error {
			if *skips = *skips || skip; !skip {
				*into = append(*into, queue)
			}
			return nil
		})
		return err
	}
}

// These are the conditions that the ends of d complete the quorum of the node x, and that they
// leave it too few to come. One excludes the other. Each comes true once: a quorum that is met
// stays so, and a node whose quorum is lost does not wait.
const (
	quorumMet  = `coalesce(x.join_done < x.wake_done AND x.join_done + d.yes >= x.wake_done, false)`
	quorumLost = `coalesce(x.join_done + d.yes + x.join_size - d.more < x.wake_done, false)`
)

var (
	edgesSQL = named("edges", edgesText)
	// addEdgesSQL inserts edges to nodes that were there before, and returns those that are new.
	addEdgesSQL = named("add edges", edgesText+` ON CONFLICT DO NOTHING RETURNING from_id, to_id`)
)

// edgesText inserts the edges of a graph. $1 from $2 to $3 needs
const edgesText = `INSERT INTO {s}.edges (from_id, to_id, needs) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[])`

// graph holds the graph of an outcome, by the uids of its nodes.
type graph struct {
	*step.Graph
	uids  []uuid.UUID
	into  map[uuid.UUID]int // by uid: the number of a node
	edges []int32           // how many each node waits for, its quorum as one

	quorum, members []*int32 // of each node that has one: how many of how many; nil: none has
}

// graphic reports whether the entry makes a graph, adds to one, or ends a node of one.
func (e *Entry) graphic() bool {
	return e.Commit.Graph != nil || e.Commit.Add != nil || e.Claim.Node != "" && e.Commit.Kind.Terminal()
}

func newGraph(o *step.Commit) *graph {
	g := &graph{Graph: o.Graph, uids: make([]uuid.UUID, len(o.Spawn)), into: make(map[uuid.UUID]int, len(o.Spawn)), edges: make([]int32, len(o.Spawn))}
	for i := range o.Spawn {
		g.uids[i] = o.Spawn[i].UID
		g.into[g.uids[i]] = i
	}
	members := make([]int, len(o.Spawn))
	for _, e := range g.Edges {
		if e.Needs == step.NeedsAny {
			members[e.To]++
		} else {
			g.edges[e.To]++
		}
	}
	for i, k := range g.Quorum {
		if k > 0 {
			g.edges[i]++
			set(&g.quorum, len(o.Spawn), i, positive(k))
			set(&g.members, len(o.Spawn), i, positive(members[i]))
		}
	}
	return g
}

// spawnNodes returns the statement that inserts nodes. None is put in line at a gate: those that
// wait must not be, and a claim does it for the others.
func (s *Store) spawnNodes(c *specs, mark string, g *graph, note func(pgx.Rows) error) entpgx.Stmt {
	text, args := spawnNodesForms.of(c, g.args(c, mark)...)
	return s.stmt(text, note, args...)
}

// args returns the arguments of spawnNodesForms for some of the nodes.
func (g *graph) args(c *specs, mark string) []any {
	names, edges := make([]string, c.len()), make([]int32, c.len())
	var quorum, members []*int32
	for i, uid := range c.uids {
		n := g.into[uid.Bytes]
		names[i], edges[i] = g.Nodes[n], g.edges[n]
		if g.quorum != nil {
			set(&quorum, c.len(), i, g.quorum[n])
			set(&members, c.len(), i, g.members[n])
		}
	}
	return append(c.args(mark), names, edges, quorum, members)
}

// edges returns the statement that inserts the edges of a graph whose nodes have these ids. None
// has one where the outcome was not applied.
func (s *Store) edges(g *graph, ids map[uuid.UUID]int64) []entpgx.Stmt {
	if len(ids) == 0 || len(g.Edges) == 0 {
		return nil
	}
	from, to, needs := make([]int64, len(g.Edges)), make([]int64, len(g.Edges)), make([]int16, len(g.Edges))
	for i, e := range g.Edges {
		from[i], to[i], needs[i] = ids[g.uids[e.From]], ids[g.uids[e.To]], int16(e.Needs)
	}
	return []entpgx.Stmt{s.stmt(edgesSQL, nil, from, to, needs)}
}
