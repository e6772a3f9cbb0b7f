package interleave

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/pgtest"
)

// mutant is a form of the engine's statements that is known to be broken, and a scenario in which
// some order must violate the named invariant. A harness that misses one is itself broken.
type mutant struct {
	name      string
	scenario  string // world/verb|verb, as in names of schedules
	invariant string
	change    change
}

// change rewrites a batch before it is sent. It returns false if it found nothing to rewrite.
type change func(session string, queries []*pgx.QueuedQuery) bool

// mutate applies the rig's mutant to the batches of a session.
func (r *rig) mutate(session string) pgtest.Batches {
	return func(queries []*pgx.QueuedQuery) {
		if mutant := r.mutant.Load(); mutant != nil && mutant.change(session, queries) {
			r.mutated.Store(true)
		}
	}
}

// text replaces words, given in pairs, in the statements that contain them.
func text(pairs ...string) change {
	return func(_ string, queries []*pgx.QueuedQuery) bool {
		found := false
		for _, q := range queries {
			before := q.SQL
			for i := 0; i < len(pairs); i += 2 {
				q.SQL = strings.ReplaceAll(q.SQL, strings.ReplaceAll(pairs[i], "{s}", `"gendurable"`), strings.ReplaceAll(pairs[i+1], "{s}", `"gendurable"`))
			}
			found = found || q.SQL != before
		}
		return found
	}
}

// of restricts a change to statements that contain these words.
func of(words string, c change) change {
	return func(session string, queries []*pgx.QueuedQuery) bool {
		found := false
		for i := range queries {
			if strings.Contains(queries[i].SQL, words) {
				found = c(session, queries[i:i+1]) || found
			}
		}
		return found
	}
}

func find(queries []*pgx.QueuedQuery, words string) int {
	return slices.IndexFunc(queries, func(q *pgx.QueuedQuery) bool { return strings.Contains(q.SQL, words) })
}

const (
	dueStill     = "s.next_at <= coalesce($2"
	fencedUpdate = "WHERE t.parent = ANY("
	dropInbox    = "WHERE s.target_id = ANY($1::bigint[])"
	spawnGated   = "WHERE x.id = u.id AND x.commit_id = $19::uuid)"
	spawnUngated = "WHERE x.id = u.id AND $19::uuid IS NOT NULL)"
)

// anyStatus makes an operator's verb apply whatever its instance is doing.
var anyStatus = []string{
	"g.status::text = ANY($14::text[])", "$14::text[] IS NOT NULL",
	"WHERE g.ctid = l.tid AND NOT g.paused AND coalesce(g.status NOT IN ('done', 'failed'), false)", "WHERE g.ctid = l.tid AND NOT g.paused",
	"WHERE g.ctid = l.tid AND coalesce(g.status = 'failed', false)", "WHERE g.ctid = l.tid",
}

// lockApart locks gates in the statement that counts, which so has a snapshot from before.
var lockApart = []string{
	"pg_try_advisory_xact_lock(", "NULL IS NULL OR pg_try_advisory_xact_lock(",
	"r.name = ANY(current_setting('gendurable.gates')::text[]) AND (r.total_rate", `(SELECT count(*) FROM (SELECT pg_advisory_xact_lock(
		hashtextextended('gendurable gate ' || r.name || ' of gendurable', 0))) l) = 1 AND (r.total_rate`,
}

// deleteBeforeUpdate moves the deletion of the inbox before the terminal update.
func deleteBeforeUpdate(_ string, queries []*pgx.QueuedQuery) bool {
	drop, update := find(queries, dropInbox), find(queries, fencedUpdate)
	if drop < 0 || update < 0 {
		return false
	}
	queries[drop].SQL = `DELETE FROM gendurable.signals s WHERE s.target_id = ANY($1::bigint[]) AND $2::uuid IS NOT NULL AND coalesce($3::bigint[], '{}') IS NOT NULL`
	queries[update].SQL = strings.Replace(queries[update].SQL, "RETURNING g.id", "RETURNING g.id, '', 0", 1) // for who reads the other's rows
	queries[drop].SQL, queries[update].SQL = queries[update].SQL, queries[drop].SQL
	queries[drop].Arguments, queries[update].Arguments = queries[update].Arguments, queries[drop].Arguments
	return true
}

// spawnApart inserts the children in a separate transaction, before the one that parks their
// parent.
func spawnApart(_ string, queries []*pgx.QueuedQuery) bool {
	spawn, settings := find(queries, spawnGated), find(queries, "set_config('lock_timeout'")
	if spawn < 0 || settings < 0 {
		return false
	}
	child := *queries[spawn]
	child.SQL = strings.ReplaceAll(child.SQL, spawnGated, spawnUngated)
	child.SQL = strings.ReplaceAll(child.SQL, "SELECT x.round FROM", "SELECT x.visit + 1 FROM")
	moved := []*pgx.QueuedQuery{&child, {SQL: `COMMIT`}}
	for i, q := range queries {
		if i != spawn && i != settings && i > 0 {
			copied := *q
			moved = append(moved, &copied)
		}
	}
	for i := range moved { // what reads the results stays where it is
		queries[i+1].SQL, queries[i+1].Arguments = moved[i].SQL, moved[i].Arguments
	}
	return true
}

// familyFromTheTop ends the parents of a cancelled family before their children.
func familyFromTheTop(_ string, queries []*pgx.QueuedQuery) bool {
	var generations []*pgx.QueuedQuery
	for _, q := range queries {
		if strings.Contains(q.SQL, "failure = 'cancelled'") {
			generations = append(generations, q)
		}
	}
	for i, j := 0, len(generations)-1; i < j; i, j = i+1, j-1 {
		generations[i].Arguments, generations[j].Arguments = generations[j].Arguments, generations[i].Arguments
	}
	return len(generations) > 1
}

// unpromoted omits the promotion that follows a statement with these words.
func unpromoted(words string) change {
	return func(session string, queries []*pgx.QueuedQuery) bool {
		return find(queries, words) >= 0 && text("WHERE n.pick_lane = 1)", "WHERE n.pick_lane = 9)")(session, queries)
	}
}

// withoutPredicate makes the GC delete by id all rows that were due when it looked.
func withoutPredicate(_ string, queries []*pgx.QueuedQuery) bool {
	for _, q := range queries {
		from, to := strings.Index(q.SQL, "AND (SELECT alone FROM c) AND"), strings.Index(q.SQL, "\n    AND NOT EXISTS (SELECT FROM \"gendurable\".gen_durable k")
		if from >= 0 && to > from {
			q.SQL = q.SQL[:from] + "AND (SELECT alone FROM c) AND $1::bigint IS NOT NULL AND $2::bigint IS NOT NULL AND $3::bigint IS NOT NULL" + q.SQL[to:]
			return true
		}
	}
	return false
}

var mutants = []mutant{
	{"status test in the wake's WHERE", "executing/park at itself|signal stop", "lost wake", text(
		"NOT IN ('done', 'failed') FOR NO KEY UPDATE) l", "NOT IN ('done', 'failed')) l",
		"FROM clock WHERE g.id = nullif(current_setting('gendurable.target'), '')::bigint",
		"FROM clock WHERE g.id = nullif(current_setting('gendurable.target'), '')::bigint AND g.status = 'awaiting_signal' AND $1::text = ANY(g.awaits)")},
	{"no re-check", "executing/park at itself|signal stop", "lost wake",
		of("s.id NOT IN (SELECT unnest($3", text("WHERE g.id = ANY($1::bigint[])", "WHERE false AND g.id = ANY($1::bigint[])"))},
	{"end without a look at the inbox", "executing/done, unless|signal stop", "ended beside a signal",
		of("WITH turned AS", text("WHERE g.id = u.id AND", "WHERE false AND g.id = u.id AND"))},
	{"re-check by high-water mark", "reclaimed/park at itself|zombie: beat", "lost wake",
		text("s.id NOT IN (SELECT unnest($3::bigint[]))", "s.id > (SELECT max(x) FROM unnest($3::bigint[]) x)")},
	{"delivery without a lock", "executing/done|signal go", "signal of the dead",
		text("NOT IN ('done', 'failed') FOR NO KEY UPDATE) l", "NOT IN ('done', 'failed')) l")},
	{"delivery to an id looked up by key", "executing/done|signal go by key", "accepted by the dead", of("set_config('gendurable.target'", text(
		"WHERE g.correlation_guard = $1::text AND g.status NOT IN ('done', 'failed')",
		"WHERE g.id = (SELECT k.id FROM {s}.gen_durable k WHERE k.correlation_guard = $1::text)"))},
	{"duplicate wakes", "executing/park at itself|signal again", "woken by nothing",
		text("CASE WHEN sent.id IS NULL THEN '' ELSE seen.id::text END", "seen.id::text")},
	{"consumption forgets the dedup key", "executing/next|signal again", "duplicate inserted",
		text("UPDATE {s}.signals s SET consumed_at = (SELECT clock_timestamp()), payload = '{}'", "DELETE FROM {s}.signals s")},
	{"start without a lock", "executing/done|start", "signal of the dead",
		text("NOT IN ('done', 'failed') FOR NO KEY UPDATE) l", "NOT IN ('done', 'failed')) l")},
	{"start whose insert keeps the target to itself", "executing/start, free key|insert many", "told duplicate",
		text("RETURNING id, uid, set_config('gendurable.target', id::text, true)", "RETURNING id, uid, set_config('gendurable.target', '', true)")},
	{"terminal delete before update", "executing/done|signal go", "signal of the dead", deleteBeforeUpdate},

	{"unfenced outcome", "runnable/zombie: next|claim", "unfenced outcome", of(fencedUpdate, text(
		"coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit", "$4::text IS NOT NULL"))},
	{"own transaction whose look is its only fence", "lost/own: next|reap, claim", "unfenced outcome", of(fencedUpdate, text(
		"coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit", "$4::text IS NOT NULL"))},
	{"unfenced end", "orphan/done|reap, claim", "unfenced outcome", text("g.claim_token = u.token AND g.visit = u.visit\nRETURNING", "$4 <> ''\nRETURNING")},
	{"end that waits", "orphan/done|hold", "waited",
		of("SET status = 'done', result", text("FOR NO KEY UPDATE SKIP LOCKED) AS tid", "FOR NO KEY UPDATE) AS tid"))},
	{"FOR UPDATE in the end", "orphan/done|refer", "hidden", of("SET status = 'done', result", text("FOR NO KEY UPDATE", "FOR UPDATE"))},
	{"fence by worker only", "reclaimed/zombie: next|retry", "unfenced outcome",
		of(fencedUpdate, text("AND g.claim_token = u.token AND g.visit = u.visit", ""))},
	{"kept claim without the visit in its fence", "executing/next, kept|next, kept", "unfenced outcome",
		of("SET step = u.step, state = u.state::jsonb", text("AND g.visit = u.visit", ""))},
	{"riders gated by the next fence", "reclaimed/zombie: next|park", "signal lost", text(
		"(SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid",
		"(SELECT g.visit FROM {s}.gen_durable g WHERE g.id = s.target_id) = 4 AND $2::uuid IS NOT NULL")},
	{"unfenced heartbeat", "reclaimed/zombie: beat|next", "lease extended by a stranger",
		of("lease_expires_at = (SELECT clock_timestamp()) + $4", text("AND g.claim_token = u.token", ""))},
	{"unfenced heartbeat of one", "reclaimed/zombie: beat alone|next", "lease extended by a stranger",
		of("WHERE g.id = $1 AND coalesce(g.status = 'executing'", text("AND g.claim_token = $2", "AND $2::bigint IS NOT NULL"))},
	{"unfenced release", "reclaimed/zombie: release|beat", "claim ended by a stranger",
		of("seat = NULL, locked_by = NULL,\n  lease_expires_at = NULL\nFROM (SELECT unnest", text("AND g.claim_token = u.token", ""))},

	{"commit that waits", "executing/next|hold", "waited",
		of(fencedUpdate, text("FOR NO KEY UPDATE SKIP LOCKED) AS tid", "FOR NO KEY UPDATE) AS tid"))},
	{"heartbeat that waits", "executing/beat|hold", "waited",
		of("lease_expires_at = (SELECT clock_timestamp()) + $4", text("SKIP LOCKED", ""))},
	{"reap that waits", "lost/reap|hold", "waited", of("AS over", text("FOR NO KEY UPDATE OF x SKIP LOCKED", "FOR NO KEY UPDATE OF x"))},
	{"claim that waits", "runnable/claim|hold", "waited", text("FOR NO KEY UPDATE OF g SKIP LOCKED", "FOR NO KEY UPDATE OF g")},
	{"time out that waits", "asleep/time out|hold", "waited", of("timed_out = true", text("SKIP LOCKED", ""))},
	{"sweep of deadlines that waits", "asleep/fail overdue|hold", "waited",
		of("FROM overdue e", text("FOR NO KEY UPDATE OF x SKIP LOCKED)\nUPDATE", "FOR NO KEY UPDATE OF x)\nUPDATE"))},
	{"sweep of deadlines without a gate for the parent", "runnable/fail overdue|sibling done", "waited",
		of("FROM overdue e", text("AND p.open", ""))},
	{"sweep of deadlines that takes claims", "executing/fail overdue|beat", "unfenced outcome",
		of("FROM overdue e", text(" AND coalesce(x.status <> 'executing', false)", ""))},
	{"deadline that is not joined", "runnable/fail overdue|sibling done", "not joined",
		of("FROM overdue e", text("AND g.joined IS NULL THEN $2::uuid ELSE", "AND false THEN $2::uuid ELSE"))},
	{"no gate for the parent", "executing/sibling done|hold parent", "waited",
		text("t.parent = ANY(ARRAY(SELECT id FROM p))", "$19::bigint[] IS NOT NULL")},
	{"join by ctid where it waits", "families/sibling done|signal parent", "barrier",
		text("t.parent = ANY(ARRAY(SELECT id FROM p))", "$19::bigint[] IS NOT NULL")},
	{"FOR UPDATE in the claim", "runnable/claim|refer", "hidden", text("FOR NO KEY UPDATE OF g SKIP LOCKED", "FOR UPDATE OF g SKIP LOCKED")},
	{"FOR UPDATE in the commit", "executing/next|refer", "hidden", of(fencedUpdate, text("FOR NO KEY UPDATE", "FOR UPDATE"))},
	{"FOR UPDATE in the delivery", "executing/signal go|refer", "hidden", of("set_config('gendurable.target'", text("FOR NO KEY UPDATE", "FOR UPDATE"))},
	{"unordered parents in the slow lane", "families/both parents, slow|hold parents", "deadlock",
		text("ORDER BY x.id FOR NO KEY UPDATE", "ORDER BY x.id DESC FOR NO KEY UPDATE")},
	{"insert in input order", "executing/done|insert many|insert many, reversed", "deadlock", text(`ORDER BY r.key COLLATE "C" NULLS FIRST, r.id`, "ORDER BY r.id")},

	{"spawn apart from park", "lost/spawn|reap", "orphan child", spawnApart},
	{"join without round", "families/stranger done|done", "woke early", text("p.round = l.parent_round AND ", "")},
	{"join of a stale outcome", "reclaimed/zombie: done|beat", "miscounted", text("WHERE k.joined = $2::uuid", "WHERE $2::uuid IS NOT NULL")},
	{"policy that no end decides", "quorum/done|another done", "overslept", text("x.join_done + d.ok >= x.wake_done OR", "")},
	{"failures that wake nobody", "quorum/reap to the limit|another stop", "overslept",
		text("OR x.join_failed + d.bad >= x.wake_failed", "")},
	{"join that leaves its timeout behind", "quorum/both done|hold parent", "row out of shape",
		text("await_deadline = CASE WHEN l.wakes THEN NULL ELSE p.await_deadline END", "await_deadline = p.await_deadline")},
	{"ends of nodes that wait for a stranger", "graph/done|hold waiting", "waited", text(" AND t.id <> ALL(ARRAY(SELECT id FROM held))", "")},
	{"sweep of nodes that waits for a stranger", "graph/reap to the limit|hold waiting", "waited",
		of("AS over", text("AND (x.node IS NULL OR NOT EXISTS (", "AND (x.node IS NULL OR true OR NOT EXISTS ("))},
	{"edge of a stale outcome", "graph/done, unless|signal node", "node woke early",
		text("WHERE k.joined = $2::uuid GROUP BY 1) d", "WHERE $2::uuid IS NOT NULL GROUP BY 1) d")},
	{"edge that is not met and wakes nobody", "graph/stop|pause waiting", "node overslept",
		text("::int OR d.ok < d.n OR", "::int OR")},
	{"edges settled by any end", "graph/done|another done", "node woke early", text("x.children_pending <= d.n + ", "true OR 0 < ")},
	{"quorum that nobody decides", "graph/another done|done", "node miscounted", text("x.join_done < x.wake_done AND", "false AND")},
	{"quorum decided too early", "graph/another stop, slow|hold waiting", "node woke early",
		text("count(*) FILTER (WHERE e.needs = 3 AND k.status = 'done')::int AS yes", "count(*) FILTER (WHERE e.needs = 3)::int AS yes")},
	{"root that does not wait for what is added", "graph/adds|another done", "barrier",
		text("p.children_pending + $3::int", "p.children_pending + 0 * $3::int")},
	{"added edge whose origin has ended", "graph/another done|adds", "node miscounted", text("k.joined <> $2::uuid", "k.joined <> $2::uuid AND false")},
	{"cancel of a decision whose claim is over", "graph over/reap|adds", "unfenced outcome",
		of("SELECT EXISTS (SELECT FROM", text("WHERE g.id = $1::bigint AND", "WHERE g.id = $1::bigint OR"))},
	{"node that does not wait for what is added", "graph/next that adds|hold waiting", "node miscounted",
		text("p.children_pending + u.n", "p.children_pending + 0 * u.n")},
	{"nodes locked out of order", "graph/done, slow|hold waiting, root", "deadlock",
		of("UNION SELECT e.to_id FROM", text("ORDER BY x.id FOR NO KEY UPDATE", "ORDER BY x.id DESC FOR NO KEY UPDATE"))},
	{"signal that wakes no parent", "quorum/signal parent|hold parent", "lost wake",
		text("g.status IN ('awaiting_signal', 'awaiting_children') AND", "g.status = 'awaiting_signal' AND")},
	{"rejoin that counts its own batch twice", "rejoined/rejoin beside a child|both done", "woke early",
		text("k.joined <> $2::uuid AND k.status = 'done'", "k.joined IS NOT NULL AND k.status = 'done'")},
	{"rejoin without a count", "rejoined/rejoin|done", "barrier", text("children_pending = u.size - u.ok - u.bad - u.skipped,", "children_pending = g.children_pending,")},
	{"rest that is cancelled too soon", "rest/rest|done", "cancelled though waited for",
		text("AND (x.status <> 'awaiting_children' OR x.losers[1] <> x.round)", "", "WHERE l.status <> 'awaiting_children' OR r.round <> l.round", "")},
	{"rest of any round", "left/rest|parent spawns", "cancelled though waited for", text("abs(k.parent_round) = u.round AND k.finished_at IS NULL AND k.id <>", "k.finished_at IS NULL AND k.id <>")},
	{"rest that is forgotten", "left/rest|hold nephew", "loser left",
		text("WHERE NOT EXISTS (SELECT FROM {s}.gen_durable k WHERE k.parent_id = u.parent", "WHERE NOT EXISTS (SELECT FROM {s}.gen_durable k WHERE k.parent_id = -u.parent")},
	{"rest without what it has spawned", "left/rest|nephew spawns", "loser left", text("k.parent_id = g.id AND k.finished_at IS NULL)", "k.parent_id = -g.id)")},
	{"graph that is cancelled too soon", "ended/rest|root released", "cancelled though its root lives",
		text("x.graphs IS NOT NULL AND x.finished_at IS NOT NULL", "x.graphs IS NOT NULL", "AS r(round) WHERE l.finished_at IS NOT NULL", "AS r(round)")},
	{"graph that outlives its root", "ended/rest|root done", "outlives its root",
		text("x.graphs IS NOT NULL AND x.finished_at IS NOT NULL", "x.graphs IS NOT NULL AND x.status = 'failed'")},
	{"rest that ends steps under a key unseen", "left/rest|done", "lost claim not noted",
		text("coalesce(x.partition_key, ''), x.status::text", "'', x.status::text")},
	{"rest that waits", "left/rest|hold nephew", "waited", of("k.id <> ALL($3", text("SKIP LOCKED", ""))},
	{"rest without a gate for the parent", "left/rest|hold parent", "waited", of("unnest(l.losers)", text("FOR NO KEY UPDATE SKIP LOCKED", ""))},
	{"no recheck of a join", "executing/spawn until a signal|signal stop", "lost wake", text("SELECT unnest($3::bigint[])", "SELECT s.id WHERE $3::bigint[] IS NULL OR true")},
	{"barrier counts dropped children", "executing/spawn, keyed|insert, child's key", "barrier",
		of("dropped = u.dropped::jsonb", text("AND g.commit_id = $2::uuid", "AND g.commit_id <> $2::uuid"))},

	{"claim that heeds no gate", "gated/claim|claim again", "claim without a place", text("CASE WHEN w.gate IS NULL THEN 0 ELSE 5 END", "0")},
	{"end that keeps its place", "gated/done|claim", "place kept", text("gate = NULL, place = NULL, seat = NULL,\n  finished_at", "finished_at")},
	{"claim that passes the lines by", "gated/done|claim", "line stands still", text("WHERE w.free > 0 AND (w.rate", "WHERE w.free > 9 AND (w.rate")},
	{"claim that does not count", "gated/claim|claim again", "gate exceeded", text("m.places - cardinality(h.taken)", "m.places + 1 - cardinality(h.taken)", "least(w.places, cardinality", "least(2, cardinality")},
	{"claim that does not count all", "shared/claim|claim again", "total exceeded", text("r.total - (SELECT count(*)", "r.total - (SELECT 0 * count(*)")},
	{"one snapshot for the lock and the count of all", "shared/done|claim|claim again", "total exceeded", text(lockApart...)},
	{"one snapshot for the lock and a debt", "rated/claim|claim again", "rate exceeded", text(lockApart...)},
	{"claim without the lock", "rated/claim|claim again", "rate exceeded", text("pg_try_advisory_xact_lock(", "NULL IS NULL OR pg_try_advisory_xact_lock(")},
	{"claim that does not look at the debt", "rated/claim|claim again", "rate exceeded", text("floor(r.rate_burst - d.debt)", "r.rate_burst + 9",
		"p.debt + p.spent - p.cost + least(p.cost, p.burst) <= p.burst", "true", "floor(r.total_rate_burst - d.owes)", "99",
		"s.owes + s.gate_spent - s.cost + least(s.cost, s.total_burst) <= s.total_burst", "true")},
	{"claim that does not pay", "rated/claim|claim again", "rate not paid", of("AS around", text("debt = excluded.debt", "debt = b.debt"))},
	{"claim that forgets a throttle", "rated/claim|throttle", "throttled for nothing",
		text("CASE WHEN b.debt = 0 THEN b.pace ELSE excluded.pace END", "excluded.pace")},
	{"seats that nobody counts", "seated/claim|claim again", "gate exceeded", text("r.places - cardinality(h.taken), floor", "r.places, floor",
		"least(n.places, cardinality(n.taken) + n.free)", "cardinality(n.taken) + n.free")},
	{"seats that nobody pays", "seated/claim|claim again", "rate not paid", of(".gate_keys AS o (key", text("c.count > 0", "c.count < 0"))},
	{"end that keeps its seat", "seated/done|claim", "place kept", text("gate = NULL, place = NULL, seat = NULL,\n  finished_at", "gate = NULL, place = NULL,\n  finished_at")},
	{"run that begins beside the gate", "running/claim|claim again", "claim without a place", text("(r.run AND g.run_gate IS NULL OR NOT r.run AND NOT", "(NOT r.run AND NOT",
		"(NOT o.run OR g.run_gate IS NULL)", "NOT o.run")},
	{"run that nobody counts", "running/claim|claim again", "gate exceeded", text("m.places - cardinality(h.taken)", "m.places + 1 - cardinality(h.taken)",
		"least(w.places, cardinality", "least(2, cardinality")},
	{"run that ends and keeps its place", "running/done|claim", "line stands still", text("g.run_place IS NOT NULL AND g.finished_at IS NULL) ELSE", "g.run_place IS NOT NULL) ELSE",
		"g.run_gate = x.k AND g.run_place IS NOT NULL AND g.finished_at IS NULL", "g.run_gate = x.k AND g.run_place IS NOT NULL")},

	{"no promotion", "executing/done|beat", "key stands still", text("WHERE n.pick_lane = 1)", "WHERE n.pick_lane = 9)")},
	{"behind an anchor that is not held", "followed/done|claim", "key stands still",
		text("THEN 4 END AS act", "THEN 1 END AS act")},
	{"settled behind a head that is not locked", "unsettled/clear|pause", "key stands still",
		of("NOT IN (SELECT id FROM busy)", text("AND g.eligible_at <= (SELECT now FROM c)\n  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED", ""))},
	{"settled behind a claim that is not locked", "followed/clear|done", "key stands still",
		of("NOT IN (SELECT id FROM busy)", text("'executing', false)\n  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED", "'executing', false)"))},
	{"blocked rows in front for ever", "unsettled/promote|drain//subject held", "bystander waits", text("THEN 4 END AS act", "END AS act")},
	{"plain claim that heeds no key", "unsettled/claim plainly|hold", "overtook",
		text("WHERE NOT EXISTS (SELECT FROM seen WHERE partition_key IS NOT NULL)", "WHERE true")},
	{"claim of what is not the head", "unsettled/claim|hold", "overtook",
		text("p.busy IS NULL AND p.head = w.id", "p.busy IS NULL")},
	{"cancel that locks nothing", "executing/done|cancel", "unfenced outcome", text("\nORDER BY g.id FOR NO KEY UPDATE OF g", "\nORDER BY g.id",
		" AND coalesce(g.status NOT IN ('done', 'failed'), false)\nRETURNING g.id", "\nRETURNING g.id")},
	{"cancel that does not lock the parent", "families/cancel child|signal parent", "barrier",
		text("WHERE $18::boolean AND x.id = ANY", "WHERE NOT $18::boolean AND x.id = ANY")},
	{"cancel that is not joined", "families/cancel child|sibling done", "not joined",
		of("failure = 'cancelled'", text("AND g.joined IS NULL THEN $2::uuid ELSE", "AND false THEN $2::uuid ELSE"))},
	{"retry that forgets the join", "families/cancel child, retry|sibling done", "joined twice",
		text("status = 'runnable', failure = NULL,", "status = 'runnable', joined = NULL, failure = NULL,")},
	{"pause in the lane behind the key", "runnable/pause, resume|claim", "key stands still",
		text("SET paused = false, pick_lane = CASE WHEN g.pick_lane = 5 THEN 5 ELSE 0 END\n", "SET paused = false, pick_lane = 1\n")},
	{"resume where it was", "executing/done|pause, resume follower", "key stands still",
		text("SET paused = false, pick_lane = CASE WHEN g.pick_lane = 5 THEN 5 ELSE 0 END\n", "SET paused = false\n")},
	{"pause without a promotion", "runnable/pause|signal go", "key stands still", unpromoted("SET paused = true")},
	{"reschedule without a promotion", "runnable/reschedule, late|signal go", "key stands still", unpromoted("greatest($2::timestamptz")},
	{"cancel without a promotion", "executing/cancel|signal go", "key stands still", unpromoted("failure = 'cancelled'")},
	{"pause of what has ended", "executing/done|pause", "terminal row changed", text(anyStatus...)},
	{"claim that does not look for a pause", "runnable/claim|pause", "claimed though paused", of(" AS act", text(" AND NOT g.paused", ""))},
	{"cancel of what does not execute", "executing/cancel|signal go", "was not changed", of("failure = 'cancelled'", text(
		"g.status NOT IN ('done', 'failed'), false)", "g.status NOT IN ('done', 'failed', 'executing'), false)"))},
	{"cancel of a family from the top", "executing/cancel family|signal go", "cancelled before its child", familyFromTheTop},
	{"cancel of a family in what order it comes", "families/cancel family|hold family", "deadlock", text(
		"ORDER BY g.id FOR NO KEY UPDATE OF g", "ORDER BY g.id DESC FOR NO KEY UPDATE OF g")},
	{"retry of what is done", "graveyard/retry, done|prune", "terminal row changed", text(anyStatus...)},
	{"retry without the key", "graveyard/retry, key free|insert, free key", "retried as another",
		text("status = 'runnable', failure = NULL,", "status = 'runnable', correlation_scope = '{}', failure = NULL,")},
	{"retry of another visit", "families/cancel child, retry|sibling done", "retried as another",
		text("status = 'runnable', failure = NULL,", "status = 'runnable', visit = g.visit + 1, failure = NULL,")},
	{"reap that notes nothing", "lost/reap|claim", "lost claim not noted", text("SELECT u.k, u.w, u.t FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(k, w, t)",
		"SELECT u.k, u.w, u.t FROM unnest($1::text[], $2::text[], $3::bigint[]) AS u(k, w, t) WHERE false")},
	{"claim that is told of nobody", "lost/reap|claim by another", "not told who lingers",
		text("l.partition_key = g.partition_key AND l.worker <> $1", "l.partition_key = g.partition_key AND l.worker <> $1 AND l.lost_at < now() - interval '1 h'")},
	{"question that takes the living for gone", "lingering/ask|promote", "lost claim forgotten", of("SELECT DISTINCT l.partition_key FROM l",
		text("pg_try_advisory_xact_lock(", "NOT pg_try_advisory_xact_lock("))},
	{"sweep that forgets the living", "lingering/sweep|claim", "lost claim forgotten", text("ELSE false END AS gone", "ELSE false END OR true AS gone")},
	{"sweep that forgets what is in flight", "lingering/sweep, in flight|claim", "lost claim forgotten", text("AND y.claim_token <> ALL(coalesce($2::bigint[], '{}'))", "AND $2::bigint[] IS NOT NULL")},
	{"sweep that forgets what is not begun yet", "lingering/sweep, not begun|claim", "lost claim forgotten",
		text("AND y.lost_at < (SELECT clock_timestamp()) - $3::bigint * interval '1 microsecond'", "AND $3::bigint > 0")},
	{"end that is not told", "lingering/land|claim", "lost claim kept", text("AND x.claim_token = ANY($2::bigint[])", "AND x.claim_token <> ALL($2::bigint[])")},
	{"firing that locks nothing", "scheduled/fire|pause", "fired though paused", of(dueStill, text("FOR NO KEY UPDATE SKIP LOCKED", ""))},
	{"firing of what was deleted", "scheduled/fire|delete", "occurrence of no schedule", of(dueStill, text("FOR NO KEY UPDATE SKIP LOCKED", ""))},
	{"firing by who was overtaken", "scheduled/fire|fire, later", "fired from elsewhere", of(dueStill, text("FOR NO KEY UPDATE SKIP LOCKED", ""))},
	{"firing that waits", "scheduled/fire|fire", "waited", of(dueStill, text("SKIP LOCKED", ""))},
	{"firing of what is paused", "scheduled/fire|pause", "fired though paused", of(dueStill, text("s.paused_at IS NULL AND", ""))},
	{"run by hand without a lock", "scheduled/run lone|run lone", "overlap", text("schedules s WHERE s.name = $1 FOR NO KEY UPDATE", "schedules s WHERE s.name = $1")},
	{"declaration that begins anew", "scheduled/store, other spec|fire", "fired from elsewhere", text("ELSE s.next_at END", "ELSE excluded.next_at END")},
	{"replace of what has begun", "windowed/replace|claim", "replaced what had begun", text("coalesce(g.status = 'runnable' AND g.claim_token = 0, false)\n", "true\n")},
	{"window that everybody opens", "windowed/throttle|throttle again", "window exceeded", text("OR w.until <= CASE", "OR true OR w.until <= CASE")},
	{"window that is not settled", "windowed/once|claim", "window lost", text("SET instance = u.id,", "SET instance = w.instance,")},
	{"window that stays though the key is taken", "windowed/throttle, key taken|claim", "window without an instance",
		of("DELETE FROM", text("windows w WHERE w.name = ANY($1::text[])", "windows w WHERE false AND w.name = ANY($1::text[])"))},
	{"debounce that finds nobody", "windowed/debounce|claim", "debounced beside", text("SELECT w.name, w.uid, w.instance,", "SELECT w.name, w.uid, 0::bigint,")},
	{"GC of open windows", "windowed/throttle|prune", "window lost", text("w.until < (SELECT now FROM c) - interval '1 minute'", "w.until IS NOT NULL")},
	{"look that finds no run", "windowed/newest|claim", "newest refused", of("SELECT g.correlation_guard, g.id, g.finished_at IS NOT NULL",
		text("g.finished_at IS NOT NULL", "true"))},
	{"GC without its predicate repeated", "graveyard/prune|retry", "live row deleted", withoutPredicate},
}
