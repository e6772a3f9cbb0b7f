package pairs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/steady"
)

// invariant is what must hold in the tables whenever nothing can run. The query lists what breaks
// it.
type invariant struct {
	kind, query string
}

// waitsForNodes is the condition that the row g waits for nodes of its graph, and not for children.
const waitsForNodes = `(g.status = 'awaiting_children' AND g.node IS NOT NULL AND g.visit = 0)`

var invariants = []invariant{
	// A place of a whole run stays in the row as it ends: the index of such places has live rows only.
	{kind: "an ended instance holds a claim", query: `SELECT format('%s of %s', id, locked_by) FROM gendurable.gen_durable WHERE finished_at IS NOT NULL AND locked_by IS NOT NULL`},
	{kind: "an instance holds a place that it does not use", query: `SELECT format('%s %s: place %s seat %s', id, status, place, seat)
		FROM gendurable.gen_durable WHERE status <> 'executing' AND (place IS NOT NULL OR seat IS NOT NULL)`},
	{kind: "a node that is to be skipped waits", query: `SELECT format('%s %s, eligible at %s, gate %s', id, node, eligible_at, gate)
		FROM gendurable.gen_durable WHERE node IS NOT NULL AND visit = 0 AND join_failed > 0 AND finished_at IS NULL AND NOT paused`},
	{kind: "a parent counts other children than there are", query: `SELECT format('%s waits for %s children, %s of its round are to end', g.id, g.children_pending, c.left)
		FROM gendurable.gen_durable g
		CROSS JOIN LATERAL (SELECT count(*) AS left FROM gendurable.gen_durable k WHERE k.parent_id = g.id AND k.parent_round = g.round AND k.joined IS NULL) c
		WHERE g.status = 'awaiting_children' AND NOT ` + waitsForNodes + ` AND g.round > 0 AND g.children_pending <> c.left`},
	{kind: "a parent sleeps, and all its children have ended", query: `SELECT format('%s at %s', g.id, g.step) FROM gendurable.gen_durable g
		WHERE g.status = 'awaiting_children' AND NOT ` + waitsForNodes + ` AND NOT EXISTS (
			SELECT FROM gendurable.gen_durable k WHERE k.parent_id = g.id AND k.parent_round = g.round AND k.joined IS NULL)`},
	// A race that was restarted waits for all, and has no policy any more. A child that was retried
	// has counted, and its next end, which has another mark, does not.
	{kind: "a race sleeps, and a child has ended that it has not seen", query: `SELECT format('%s has seen %s, and not %s', g.id, g.state -> 'shown', k.id)
		FROM gendurable.gen_durable g JOIN gendurable.gen_durable k ON k.parent_id = g.id AND k.parent_round = g.round AND k.finished_at IS NOT NULL
		WHERE g.status = 'awaiting_children' AND g.step = 'race.next' AND g.wake_ended IS NOT NULL AND NOT coalesce(g.state -> 'shown' @> to_jsonb(k.id), false)
			AND NOT coalesce(k.joined <> k.commit_id, false)`},
	// The reverse is right: a child that is retried has counted already.
	{kind: "a child has ended, and does not count", query: `SELECT format('%s is %s, joined %s', k.id, k.status, k.joined)
		FROM gendurable.gen_durable k JOIN gendurable.gen_durable g ON g.id = k.parent_id AND g.round = k.parent_round
		WHERE g.status = 'awaiting_children' AND k.finished_at IS NOT NULL AND k.joined IS NULL`},
	{kind: "a node waits for one that is gone", query: `SELECT format('%s %s waits for %s', g.id, g.node, e.from_id) FROM gendurable.gen_durable g
		JOIN gendurable.edges e ON e.to_id = g.id
		WHERE ` + waitsForNodes + ` AND NOT EXISTS (SELECT FROM gendurable.gen_durable x WHERE x.id = e.from_id)`},
	{kind: "a node lives, and its root has ended", query: `SELECT format('%s %s is %s, the root %s is %s', k.id, k.node, k.status, g.id, g.status)
		FROM gendurable.gen_durable k JOIN gendurable.gen_durable g ON g.id = k.parent_id
		WHERE k.node IS NOT NULL AND k.finished_at IS NULL AND g.finished_at IS NOT NULL`},
	// Only the bounds of operators put single instances aside, as sided says.
	{kind: "a node is in another queue than its root", query: `SELECT format('%s %s is in %s, the root %s in %s', k.id, k.node, k.queue, g.id, g.queue)
		FROM gendurable.gen_durable k JOIN gendurable.gen_durable g ON g.id = k.parent_id
		WHERE k.node IS NOT NULL AND k.queue <> g.queue AND NOT (k.queue = 'aside' AND k.labels ? 'side')`},
	{kind: "a child is without its parent", query: `SELECT format('%s of %s', k.id, k.parent_id) FROM gendurable.gen_durable k
		WHERE k.parent_id IS NOT NULL AND NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.id = k.parent_id)`},
	{kind: "a claim is left", query: `SELECT format('%s of %s', id, locked_by) FROM gendurable.gen_durable WHERE status = 'executing'`},
	{kind: "an instance begins where none may", query: `SELECT format('%s at %s is %s, visit %s', g.id, g.gate, g.status, g.visit) FROM gendurable.gen_durable g
		WHERE ` + stuck + ` AND NOT g.labels ? 'holder' AND (g.status <> 'runnable' OR g.visit > 0 OR g.attempt > 0)`},
	{kind: "two instances have a key", query: `SELECT format('%s', correlation_guard) FROM gendurable.gen_durable GROUP BY correlation_guard HAVING count(*) > 1 AND correlation_guard IS NOT NULL`},
}

// emptied lists what must be gone when everything has ended and a month has passed.
var emptied = []string{"gen_durable", "signals", "edges", "kept_signals", "windows"}

// broken returns the invariants that do not hold now.
func (r *rig) broken() (all []violation, err error) {
	for _, i := range invariants {
		rows, _ := r.pool.Query(r.ctx, i.query)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.kind, err)
		}
		for _, f := range found {
			all = append(all, violation{i.kind, f})
		}
	}
	return all, nil
}

// look asks the invariants, and whether all that is done has the right result. A fleet may be about
// to do what it tries again, such as a join whose parent was locked: then it is asked again.
func (r *rig) look() error {
	all, err := r.broken()
	if err == nil && r.fleet != nil && len(all) > 0 {
		steady.Happens(r.t, gives, func() (int, bool) {
			if err = r.relieve(); err == nil {
				all, err = r.broken()
			}
			return r.taken(), err != nil || len(all) == 0
		})
	}
	if err != nil {
		return err
	}
	for _, v := range all {
		r.violate(v.kind, "%s", v.detail)
	}
	rows, _ := r.pool.Query(r.ctx, `SELECT id FROM gendurable.gen_durable WHERE failure = 'skipped'`)
	skipped, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	r.m.Lock()
	begun := maps.Clone(r.begun)
	r.m.Unlock()
	for _, id := range skipped {
		if begun[fsm.ID(id)] {
			r.violate("a node is skipped that has begun", "%d", id)
		}
	}
	rows, _ = r.pool.Query(r.ctx, `SELECT id, state, result FROM gendurable.gen_durable WHERE status = 'done' AND fsm = 'unit'`)
	var id int64
	var raw, result json.RawMessage
	_, err = pgx.ForEachRow(rows, []any{&id, &raw, &result}, func() error {
		var s state
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		if want := fmt.Sprint(worth(s.Life)); string(result) != want {
			r.violate("done with a wrong result", "%s, instance %d of life %v, is done with %s instead of %s", s.Path, id, s.Life, result, want)
		}
		return nil
	})
	return err
}

// need is an instance that the GC has to keep, and for what.
type need struct {
	id  int64
	why string
}

// needed returns the instances that the GC must not delete now, by the rule in words and in another
// way than the GC's own statements: an instance that is kept for itself (it has not ended, or its
// retention is not over); the nodes that a kept node waits for; the parents of kept ones; and below
// kept ones, the children of its current round and theirs, since an operator may run it again. A
// parent that is done is not run again: if it is kept for a child only, its other children may go.
// A node that is kept for one behind it has its result in its row.
func (r *rig) needed() ([]need, error) {
	rows, _ := r.pool.Query(r.ctx, `WITH RECURSIVE keep AS (
		SELECT g.id, CASE WHEN g.finished_at IS NULL THEN 'it lives' ELSE 'its retention is not over' END AS why FROM gendurable.gen_durable g
		WHERE g.finished_at IS NULL OR g.finished_at > clock_timestamp() + interval '1 minute' - coalesce(CASE WHEN g.status = 'done' THEN nullif(g.retain[1], -1)
			WHEN g.failure = 'cancelled' THEN coalesce(nullif(g.retain[3], -1), nullif(g.retain[2], -1)) ELSE nullif(g.retain[2], -1) END, $1::bigint) * interval '1 microsecond'
		UNION
		SELECT k.id, k.why FROM keep a JOIN gendurable.gen_durable g ON g.id = a.id
		CROSS JOIN LATERAL (
			SELECT k.id, 'its parent is kept' || CASE WHEN a.why LIKE '%for a child' THEN ' for a child' ELSE '' END AS why
			FROM gendurable.gen_durable k WHERE k.parent_id = g.id AND k.parent_round = g.round AND NOT (g.status = 'done' AND a.why LIKE '%for a child')
				AND a.why <> 'a node waits for it'
			UNION ALL SELECT g.parent_id, 'it is kept for a child' WHERE g.parent_id IS NOT NULL
			UNION ALL SELECT e.from_id, 'a node waits for it' FROM gendurable.edges e WHERE e.to_id = g.id AND `+waitsForNodes+`) k)
	SELECT DISTINCT ON (id) id, why FROM keep ORDER BY id, length(why)`, retention.Microseconds())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (n need, err error) {
		err = row.Scan(&n.id, &n.why)
		return n, err
	})
}

// kept finds out which of what the GC had to keep it has deleted.
func (r *rig) kept(needed []need) error {
	rows, _ := r.pool.Query(r.ctx, `SELECT id FROM gendurable.gen_durable`)
	left, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, n := range needed {
		if !slices.Contains(left, n.id) {
			r.violate("the GC deletes what is needed", "%s (%d)", n.why, n.id)
		}
	}
	return nil
}

// leftover finds out what is left at the end.
func (r *rig) leftover() error {
	for _, table := range emptied {
		var rows int
		if err := r.pool.QueryRow(r.ctx, `SELECT count(*) FROM `+pgx.Identifier{schema, table}.Sanitize()).Scan(&rows); err != nil {
			return err
		}
		if rows > 0 {
			r.violate("rows are left", "%d of %s", rows, table)
		}
	}
	return nil
}
