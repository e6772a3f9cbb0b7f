package store

import (
	"github.com/jackc/pgx/v5"
)

// Turn is where a process goes on through the lines of a queue. Each process goes round all keys by
// itself, and in each round a key has as many claims as its weight says. So in any time in which
// keys have rows in line and places, and none is in its way, they have claims in the ratio of their
// weights, and a claim cut off in the middle of a turn goes on there.
type Turn struct {
	First bool   // claim from the lines before the front
	After string // the last key that had its turn, or the one in whose turn the last claim was full
	Used  int    // what that one had of its turn; 0: all

	// Yields says to leave a place to another queue that is ahead at the same key: see rivalsText.
	Yields bool
}

// debtOf is what is left of a debt of row b of gate_keys by now, and paceOf the part of the
// rate that counts by now: it doubles in ten periods. The debt is paid off at the pace of before,
// which is the lower one.
//
// A debt from before the gate has last changed, at since, was made by another rate, and perhaps in
// another unit. It counts for a burst at most: so what the old rule has let begin is paid off, and
// nothing waits for longer than the new rule says.
//
// A clock that is set back pays nothing off until a poll has noticed it: see turnBackSQL.
func debtOf(n, per, burst, since string) string {
	return `CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < ` + since + ` THEN least(b.debt, ` + burst + `) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * ` + n + `::float8 / ` + per + ` * coalesce(b.pace, 1)) END`
}

// paidIn is in how many µs so many tokens are paid off. It is bounded by some thirty years, since
// what is owed times the period may be beyond a bigint, and an error would fail all claims.
func paidIn(tokens, n, per, pace string) string {
	return `least(1e15, ceil((` + tokens + `) * ` + per + ` / ` + n + ` / ` + pace + `))::bigint`
}

func paceOf(per string) string {
	return `least(1, b.pace * power(2, least(60, greatest(0, date_part('epoch', c.now - b.at)) * 100000 / ` + per + `)))`
}

var (
	lineSQL     = named("claim lined", lineText(false))
	lineSomeSQL = named("claim some lined", lineText(true))
	// lineWindowSQL lists the rows at which lineSQL looks, and locks none. $1 queue $2 most $3 $4 the
	// turn $5 most keys $6 ids to pass over
	lineWindowSQL = named("line window", lineLook{most: "$2", after: "$3", used: "$4", keys: "$5", pass: "$6", known: `true`, yields: `false`}.text()+`
SELECT x.id FROM line x`)
)

// lineText claims rows in line at the gates that lockGatesSQL has locked.
//
//   - r: the rules, and per gate what all its keys together may still take (total), and what they
//     owe (owes). Nobody else changes that, under the lock. A total counts the rows that have a
//     place, so a gate that bounds all keys together gives as many places to each.
//   - walk: goes from key to key in a loose index scan, behind the place where the last claim of
//     this process ended ($6), once around at most, until it has met as many free places as are
//     wanted ($4) in one turn of each key, or has visited $8 keys. A key without a place, without
//     tokens or closed costs its visit, however many rows wait there. The keys of a gate that is
//     not locked, is closed as a whole, or has nothing left of what all its keys may take together,
//     are jumped over: its first key costs a visit, and the others nothing, however many there are.
//     A key whose gate is gone lets all its rows go.
//   - key: locks the row of gate_keys of each key with a rate, and takes its debt from there:
//     whoever throttles or closes the key changes that row, and holds up only this key. If there
//     are fewer keys than rows are wanted, each has several turns. numbers are those of its free
//     places.
//   - line: the first rows of each key, locked as they are scanned, with what to do with each
//     (act). A row that somebody has locked is passed over. It is act claim; act aside if this
//     worker does not know its machine, as for claimSQL; act front to go in front, where a claim
//     decides anew: one whose gate is another by now, since an operator has changed them, or since
//     who inserted it did not know better, and one that is no longer the head of its partition key;
//     act step at a gate for whole runs, to go in line at the gate of its step, with its place.
//     What most later parts ask for stands in the first columns: Postgres takes a stored row apart
//     from its front.
//   - facts: whether there are rows that are not to be claimed, and keys that have to heed more
//     than their places. If neither, the parts that are about them do not look at the rows.
//   - paid: of the keys that have to heed more than their places, the rows in order; of all keys if
//     some row is not to be claimed, since that one takes no turn.
//   - sums: of those, the ones whose costs the tokens of their key cover. One that costs more than
//     the burst begins when nothing is owed, and is paid off.
//   - picked: of these, what the totals of the gates leave, and all rows of the other keys, which
//     need no sums; in the order of turns, what is wanted. Those with a partition key are updated
//     in key order, against deadlocks on the busy index (T85); the others need no order.
//   - turn: where the next claim goes on. Behind the last row that was picked, within its key's
//     turn: what comes after it may have been met, and has had nothing, as where a total was used
//     up. If nothing was picked and all keys were met, or nothing was wanted, where this claim
//     began: or else a key would lose the rest of its turn, or have another, whenever places are
//     scarce. If somebody has rows locked that were met, or there are too many keys without a
//     place, behind the last key that was met, so that no key is always met in vain.
//   - pay: adds to the debts. A key that nothing has begun at has no row to lock. If whoever
//     throttles it inserts one meanwhile, pay meets that row, and keeps its pace. If that one does
//     not commit, pay fails: see claimPaid.
//
// It counts places with a snapshot that is later than the lock of the gate: see gate.go. All that a
// claim needs it gets in one update, or nothing. The place of a run is no part of that: act step
// keeps it for an instance that goes on to wait at the gate of its step. Nobody waits the other way
// round, so no two wait for each other.
//
// A partition key's row is claimed on the same condition as in claimSQL: it is locked, it is the
// head of its key in the queue, and nothing executes the key. As there, the unique index
// gen_durable_busy refuses the claim if somebody else has just claimed another of the key.
//
// $1 queue $2 worker $3 machines $4 most rows to claim $5 lease, µs $6 $7 the turn $8 most keys to
// visit $9 ids to pass over $10 whether to yield, or the only ids, if it is for some.
func lineText(some bool) string {
	return lineLook{most: "$4", after: "$6", used: "$7", keys: "$8", pass: "$9", yields: either(some, `false`, `$10::bool`), locks: true, some: some,
		known: `(g.fsm || '/' || g.fsm_version) = ANY($3::text[])`}.text() + `,
paid AS MATERIALIZED (
  SELECT a.*, row_number() OVER (PARTITION BY a.n ORDER BY a.i) AS j, sum(a.cost) OVER (PARTITION BY a.n ORDER BY a.i) AS spent
  FROM line a WHERE (SELECT f.more OR f.others FROM facts f) AND a.act IN ({act claim}, {act step}) AND (a.more OR (SELECT others FROM facts))),
sums AS MATERIALIZED (
  SELECT p.*, row_number() OVER (PARTITION BY p.name ORDER BY p.turn, p.n, p.j) AS of_gate, sum(p.cost) OVER (PARTITION BY p.name ORDER BY p.turn, p.n, p.j) AS gate_spent
  FROM (SELECT p.*, (p.j + p.used + p.weight - 1) / p.weight AS turn FROM paid p) p
  WHERE p.rate IS NULL OR p.debt + p.spent - p.cost + least(p.cost, p.burst) <= p.burst),
picked AS MATERIALIZED (
  SELECT * FROM (SELECT row_number() OVER (ORDER BY s.turn, s.n, s.j) AS nth, s.* FROM (
    SELECT x.partition_key, x.act, x.tid, x.number, x.k, x.run, x.then_gate, x.n, x.i AS j, (x.i + x.used + x.weight - 1) / x.weight AS turn, x.used, x.weight,
      NULL::text AS name, NULL::int AS rate, NULL::int AS total_rate, NULL::int AS cost, NULL::float8 AS debt, NULL::float8 AS owes, NULL::float8 AS pace
    FROM line x WHERE x.act IN ({act claim}, {act step}) AND NOT x.more AND NOT (SELECT others FROM facts)
    UNION ALL
    SELECT s.partition_key, s.act, s.tid, s.number, s.k, s.run, s.then_gate, s.n, s.j, s.turn, s.used, s.weight, s.name, s.rate, s.total_rate, s.cost, s.debt, s.owes, s.pace
    FROM sums s WHERE (s.total_free IS NULL OR s.of_gate <= s.total_free)
      AND (s.total_rate IS NULL OR s.owes + s.gate_spent - s.cost + least(s.cost, s.total_burst) <= s.total_burst)) s) s
  WHERE s.nth <= (SELECT want FROM c)),
moved AS (
  UPDATE {s}.gen_durable g SET
    status = CASE WHEN t.act = {act claim} THEN 'executing' ELSE g.status END,
    pick_lane = CASE t.act WHEN {act aside} THEN {lane aside} WHEN {act step} THEN {lane line} ELSE {lane front} END,
    gate = CASE WHEN t.act = {act claim} AND NOT t.run THEN g.gate WHEN t.act = {act step} THEN t.then_gate END,
    place = CASE WHEN t.act = {act claim} AND NOT t.run THEN t.number END,
    run_gate = CASE WHEN t.run THEN t.k ELSE g.run_gate END, run_place = CASE WHEN t.run THEN t.number ELSE g.run_place END,
    seat = CASE WHEN t.act = {act claim} THEN (SELECT seats FROM c)[(SELECT had FROM c) + t.seat] END,
    locked_by = CASE WHEN t.act = {act claim} THEN $2::text END,
    lease_expires_at = CASE WHEN t.act = {act claim} THEN (SELECT clock_timestamp()) + $5::bigint * interval '1 microsecond' END,
    claim_token = CASE WHEN t.act = {act claim} THEN {next token} ELSE g.claim_token END,
    updated_at = CASE WHEN t.act = {act claim} THEN statement_timestamp() ELSE g.updated_at END
  FROM (SELECT p.tid, p.act, p.k, p.run, p.then_gate, p.number, p.nth AS seat FROM picked p WHERE p.partition_key IS NULL
    UNION ALL
    SELECT a.tid, a.act, NULL, false, NULL, NULL, NULL FROM line a WHERE a.act IN ({act aside}, {act front}) AND (SELECT others FROM facts)
    UNION ALL
    (SELECT p.tid, p.act, p.k, p.run, p.then_gate, p.number, p.nth FROM picked p WHERE p.partition_key IS NOT NULL ORDER BY p.partition_key)) t
  WHERE g.ctid = t.tid
  RETURNING t.act, g.id, g.awaits IS NOT NULL AS awaits,
    CASE WHEN t.act = {act claim} AND g.partition_key IS NOT NULL THEN {next token} END AS fencing_token),
pay AS (
  INSERT INTO {s}.gate_keys AS b (key, debt, at, pace)
  SELECT p.k, least(1e12, max(p.debt) + sum(p.cost)), (SELECT now FROM c), coalesce(max(p.pace), 1) FROM picked p WHERE (SELECT more FROM facts) AND p.rate IS NOT NULL GROUP BY p.k
  UNION ALL
  SELECT p.name, least(1e12, max(p.owes) + sum(p.cost)), (SELECT now FROM c), 1 FROM picked p WHERE (SELECT more FROM facts) AND p.total_rate IS NOT NULL AND p.k <> p.name GROUP BY p.name
  ORDER BY 1
  ON CONFLICT (key) DO UPDATE SET debt = excluded.debt, at = excluded.at, pace = CASE WHEN b.debt = 0 THEN b.pace ELSE excluded.pace END),
sum AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE act = {act claim}) AS claimed, count(*) FILTER (WHERE act > {act claim}) AS moved, count(*) FILTER (WHERE act IN ({act aside}, {act front})) AS left,
    array_agg(id) FILTER (WHERE act = {act claim}) AS ids, array_agg(id) FILTER (WHERE act = {act claim} AND awaits) AS awaiting,
    array_agg(ARRAY[id, fencing_token]) FILTER (WHERE fencing_token IS NOT NULL) AS fencing FROM moved),
turn AS (
  SELECT c.want = 0 OR l.k IS NULL AND m.met < c.want AND m.n < $8::int AS stays,
    l.k IS NOT NULL AND (sum.claimed + sum.moved >= c.want OR m.around OR m.n < $8::int) AS ends, l.k, (l.j + l.used) % l.weight AS used, m.last
  FROM sum CROSS JOIN c CROSS JOIN met m LEFT JOIN picked l ON l.nth = sum.claimed + sum.moved - sum.left)
SELECT length(set_config('gendurable.claimed', (current_setting('gendurable.claimed')::bigint[] || coalesce(sum.ids, '{}'))::text, false) ||
    set_config('gendurable.awaiting', (current_setting('gendurable.awaiting')::bigint[] || coalesce(sum.awaiting, '{}'))::text, false) ||
    set_config('gendurable.fencing', (current_setting('gendurable.fencing')::bigint[] || coalesce(sum.fencing, '{}'))::text, false) ||
    set_config('gendurable.lined', coalesce(sum.ids, '{}')::text, false)),
  sum.moved, sum.left,
  EXISTS (SELECT FROM line x WHERE x.i = x.take AND x.take < x.free),
  NOT m.around AND m.n >= $8::int,
  least((SELECT min(w.wait) FROM walk w), (SELECT min(` + paidIn("u.tokens", "u.rate", "u.rate_per", "coalesce(u.pace, 1)") + `) FROM (
      SELECT p.rate, p.rate_per, p.pace, p.debt + p.spent - p.burst + CASE WHEN p.debt + p.spent - p.cost + least(p.cost, p.burst) > p.burst
        THEN least(p.cost, p.burst) - p.cost ELSE 1 END AS tokens FROM paid p WHERE p.rate IS NOT NULL) u WHERE u.tokens > 0),
    (SELECT min(` + paidIn("u.owes + u.gate_spent - u.cost + least(u.cost, u.total_burst) - u.total_burst", "u.total_rate", "u.total_per", "1") + `)
      FROM sums u WHERE u.owes + u.gate_spent - u.cost + least(u.cost, u.total_burst) > u.total_burst)),
  EXISTS (SELECT FROM walk w WHERE w.crowded), EXISTS (SELECT FROM walk w WHERE w.ahead),
  EXISTS (SELECT FROM walk w WHERE w.yielded), EXISTS (SELECT FROM walk w WHERE w.rivals), CASE WHEN t.stays THEN $6::text WHEN t.ends THEN t.k ELSE t.last END,
  CASE WHEN t.stays THEN $7::int WHEN t.ends THEN t.used ELSE 0 END,
  (date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint
FROM sum CROSS JOIN c CROSS JOIN met m CROSS JOIN turn t`
}

// headAt is the first in line at key x.k in a queue.
func headAt(queue string) string {
	return `SELECT g.priority, g.eligible_at, g.id FROM {s}.gen_durable g WHERE g.queue = ` + queue + ` AND ` + inLine + ` AND g.gate = x.k ` + lineOrder + ` LIMIT 1`
}

// lineLook has the parameters of the rows in line at which a claim looks, and whether it locks
// them.
type lineLook struct {
	most, after, used, keys, pass string
	known                         string // the condition that this worker knows the machine of row g
	yields                        string // whether to leave places to other queues
	locks                         bool
	some                          bool // only those of given ids
}

// unpaidText are the keys without a row that somebody else is about to insert.
const unpaidText = `current_setting('gendurable.unpaid')::text[]`

// rivalsText are the other queues in which rows are in line and which somebody serves, up to
// sixteen of them.
//
// Each queue has a line of its own at a key, and whoever ends a claim claims again at once: alone,
// that gives every place to the queue that has had it before, for as long as it has rows in line.
// So a claim that yields leaves one place, or one token, of a key to another queue whose head is
// ahead of its own there, by priority, time and id, as in one queue. At what all keys of a gate
// share it leaves one if another queue has rows in line at the gate. A claim that finds no place at
// such a key reports that it has rivals, and is repeated soon, so that it meets the place that is
// left to it.
//
// Nobody waits for another queue, which may have no slots, or not be able to begin what is at its
// head: the scheduler has its claims yield for a part of the time only, see yieldFor.
func (p lineLook) rivalsText() string {
	return `other(queue) AS (
  SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE ` + inLine + ` ` + lineOrder + ` LIMIT 1) WHERE ` + p.yields + `
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE ` + inLine + ` AND g.queue > o.queue ` + lineOrder + ` LIMIT 1) FROM other o WHERE o.queue IS NOT NULL),
rival AS MATERIALIZED (
  SELECT o.queue FROM other o WHERE o.queue <> $1 AND NOT EXISTS (SELECT FROM {s}.paused_queues p WHERE p.queue = o.queue) AND EXISTS (
    SELECT FROM {s}.workers w WHERE w.queues ? o.queue AND NOT w.draining AND w.expires_at > clock_timestamp()) ORDER BY random() LIMIT 16)`
}

// text begins the statement, up to the rows at which the claim looks.
func (p lineLook) text() string {
	return `WITH RECURSIVE c AS MATERIALIZED (
  SELECT a.*, CASE WHEN ` + p.after + `::text = '' OR ` + p.used + `::int > 0 THEN ` + p.after + `::text ELSE ` + p.after + `::text || chr(1) END AS start FROM (` + allowText(p.most) + `) a),
o AS MATERIALIZED (` + onlyText + `),
` + p.rivalsText() + `,
r AS MATERIALIZED (
  SELECT r.name, r.queue, r.label, r.run, coalesce(r.places, r.total) AS places, r.rate, r.rate_per, r.rate_burst, r.cost_label, r.total_rate, r.total_rate_per, r.total_rate_burst,
    r.name = ANY(current_setting('gendurable.gates')::text[]) AND (r.total_rate IS NULL OR b.at IS NOT NULL OR e.key IS NULL AND r.name <> ALL(` + unpaidText + `)) AS mine,
    r.updated_at, coalesce(b.at > c.now, false) AS ahead, e.closed_until AS closed, d.owes, y.shared, least(CASE WHEN r.total IS NULL THEN NULL
        WHEN r.run THEN r.total - (SELECT count(*) FROM {s}.gen_durable g
          WHERE g.run_place IS NOT NULL AND g.finished_at IS NULL AND split_part(g.run_gate, '/', 1) = r.name)
        ELSE r.total - (SELECT count(*) FROM {s}.gen_durable g WHERE g.place IS NOT NULL AND split_part(g.gate, '/', 1) = r.name) END,
      floor(r.total_rate_burst - d.owes))::bigint - y.shared::int AS total_free
  FROM c CROSS JOIN {s}.gates r LEFT JOIN {s}.gate_keys e ON e.key = r.name
  LEFT JOIN LATERAL (SELECT b.debt, b.at, b.pace FROM {s}.gate_keys b WHERE r.total_rate IS NOT NULL AND b.key = r.name
   ` + when(p.locks, ` FOR NO KEY UPDATE OF b SKIP LOCKED`) + `) b ON true
  LEFT JOIN LATERAL (SELECT ` + debtOf("r.total_rate", "r.total_rate_per", "r.total_rate_burst", "r.updated_at") + ` AS owes OFFSET 0) d ON r.total_rate IS NOT NULL
  CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM rival q WHERE r.queue IS NULL AND num_nonnulls(r.total, r.total_rate) > 0 AND (
    SELECT g.id FROM {s}.gen_durable g WHERE g.queue = q.queue AND ` + inLine + ` AND g.gate ~>=~ (r.name || '/') AND g.gate ~<~ (r.name || '0')
    ` + lineOrder + ` LIMIT 1) IS NOT NULL) AS shared OFFSET 0) y),
walk AS (
  SELECT 0 AS n, c.start AS lo, NULL::text AS k, false AS around, NULL::text AS name, false AS run, NULL::int AS places, NULL::int[] AS taken,
    NULL::int AS rate, NULL::bigint AS rate_per, NULL::int AS burst, NULL::text AS cost_label, NULL::bigint AS total_free, NULL::int AS total_rate,
    NULL::bigint AS total_per, NULL::int AS total_burst, NULL::float8 AS owes, 1 AS weight, 0 AS used, 0::bigint AS free, 0::bigint AS met,
    NULL::bigint AS wait, false AS crowded, NULL::timestamptz AS since, false AS ahead,
    false AS yielded, false AS rivals FROM c
  UNION ALL
  SELECT v.n, v.lo, v.k, v.around, v.name, v.run, v.places, v.taken, v.rate, v.rate_per, v.burst, v.cost_label, v.total_free, v.total_rate,
    v.total_per, v.total_burst, v.owes, v.weight, v.used, v.free, v.met + least(v.free, v.weight - v.used), v.wait, v.crowded, v.since, v.ahead, v.yielded, v.rivals
  FROM (
    SELECT w.n + 1 AS n, CASE WHEN strpos(x.k, '/') > 0 AND (NOT r.mine OR coalesce(r.closed > c.now OR r.places <= 0 OR r.total_free <= 0, false))
        THEN r.name || '0' ELSE x.k || chr(1) END AS lo, x.k, x.around,
      r.name, coalesce(r.run, false) AS run, r.places, h.taken, r.rate, r.rate_per, r.rate_burst AS burst, r.cost_label, r.total_free, r.total_rate,
      r.total_rate_per AS total_per, r.total_rate_burst AS total_burst, r.owes, coalesce(b.weight, 1) AS weight,
      CASE WHEN w.n = 0 AND x.k = ` + p.after + `::text THEN least(` + p.used + `::int, coalesce(b.weight, 1) - 1) ELSE 0 END AS used, w.met,
      CASE WHEN r.name IS NULL THEN c.want WHEN NOT r.mine OR r.closed > c.now OR b.closed_until > c.now THEN 0
        ELSE greatest(0, least(c.want, f.of_key - coalesce(y.behind, false)::int, r.total_free)) END::bigint AS free,
      CASE WHEN NOT r.mine THEN NULL
        WHEN r.closed > c.now OR b.closed_until > c.now THEN (date_part('epoch', greatest(r.closed, b.closed_until) - c.now) * 1000000)::bigint
        WHEN d.debt + 1 > r.rate_burst THEN ` + paidIn("d.debt + 1 - r.rate_burst", "r.rate", "r.rate_per", "coalesce(b.pace, 1)") + `
        WHEN r.owes + 1 > r.total_rate_burst THEN ` + paidIn("r.owes + 1 - r.total_rate_burst", "r.total_rate", "r.total_rate_per", "1") + ` END AS wait,
      coalesce(r.mine AND (cardinality(h.taken) >= r.places OR r.total_free <= 0), false) AS crowded,
      r.updated_at AS since, coalesce(b.at > c.now OR r.ahead, false) AS ahead,
      coalesce(r.mine AND (y.behind AND f.of_key > 0 OR r.shared AND r.total_free >= 0 AND r.total_free < c.want), false) AS yielded,
      coalesce(r.mine AND (f.of_key <= 0 AND y.some OR r.shared AND r.total_free <= 0), false) AS rivals
    FROM (SELECT * FROM walk) w CROSS JOIN c
    CROSS JOIN LATERAL (
      SELECT coalesce(f.k, CASE WHEN NOT w.around THEN (
          SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND ` + inLine + ` ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) END) AS k,
        w.around OR f.k IS NULL AS around
      FROM (SELECT (SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND ` + inLine + ` AND g.gate ~>=~ w.lo
        ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) AS k OFFSET 0) f OFFSET 0) x
    LEFT JOIN r ON r.name = split_part(x.k, '/', 1)
    LEFT JOIN LATERAL (SELECT b.* FROM {s}.gate_keys b WHERE b.key = x.k OFFSET 0) b ON r.mine
    LEFT JOIN LATERAL (SELECT ` + debtOf("r.rate", "r.rate_per", "r.rate_burst", "r.updated_at") + ` AS debt OFFSET 0) d ON r.rate IS NOT NULL
    LEFT JOIN LATERAL (SELECT CASE WHEN r.run
      THEN ARRAY(SELECT g.run_place FROM {s}.gen_durable g WHERE g.run_gate = x.k AND g.run_place IS NOT NULL AND g.finished_at IS NULL)
      ELSE ARRAY(SELECT g.place FROM {s}.gen_durable g WHERE g.gate = x.k AND g.place IS NOT NULL) END AS taken OFFSET 0) h ON r.mine AND r.places IS NOT NULL
    CROSS JOIN LATERAL (SELECT least(r.places - cardinality(h.taken), floor(r.rate_burst - d.debt))::bigint AS of_key OFFSET 0) f
    LEFT JOIN LATERAL (SELECT count(*) > 0 AS some, bool_or((z.priority, z.eligible_at, z.id) < (a.priority, a.eligible_at, a.id)) AS behind
      FROM rival q CROSS JOIN LATERAL (` + headAt("q.queue") + `) z CROSS JOIN LATERAL (` + headAt("$1") + `) a) y ON r.mine AND r.queue IS NULL AND f.of_key <= c.want
    WHERE w.met < c.want AND w.n < ` + p.keys + `::int AND x.k IS NOT NULL AND NOT (x.around AND x.k ~>=~ c.start)) v),
met AS MATERIALIZED (
  SELECT max(w.met) AS met, max(w.n) AS n, greatest(1, ceil(max(c.want)::numeric / greatest(1, max(w.met))))::int AS turns, bool_or(w.around) AS around,
    (array_agg(w.k ORDER BY w.n DESC))[1] AS last FROM walk w CROSS JOIN c),
key AS MATERIALIZED (
  SELECT w.n, w.k, w.name, w.run, w.places IS NOT NULL AS placed, w.rate, w.rate_per, w.burst, w.cost_label, w.total_free, w.total_rate, w.total_per,
    w.total_burst, w.owes, w.weight, w.used, w.free, least(w.free, w.weight * m.turns - w.used) AS take, d.debt, b.pace_now AS pace,
    num_nonnulls(w.rate, w.total_free, w.total_rate) > 0 AS more,
    CASE WHEN cardinality(w.taken) > 0 THEN ARRAY(SELECT f.n FROM (
      SELECT generate_series(1, least(w.places, cardinality(w.taken) + least(w.free, w.weight * m.turns - w.used)))::int
      EXCEPT SELECT unnest(w.taken)) f(n) ORDER BY f.n) END AS numbers
  FROM walk w CROSS JOIN met m CROSS JOIN c
  LEFT JOIN LATERAL (SELECT b.debt, b.at, b.pace, ` + paceOf("w.rate_per") + ` AS pace_now FROM {s}.gate_keys b
    WHERE w.rate IS NOT NULL AND b.key = w.k` + when(p.locks, ` FOR NO KEY UPDATE OF b SKIP LOCKED`) + `) b ON true
  LEFT JOIN LATERAL (SELECT ` + debtOf("w.rate", "w.rate_per", "w.burst", "w.since") + ` AS debt OFFSET 0) d ON w.rate IS NOT NULL
  WHERE w.free > 0 AND (w.rate IS NULL OR b.at IS NOT NULL OR NOT EXISTS (SELECT FROM {s}.gate_keys e WHERE e.key = w.k) AND w.k <> ALL(` + unpaidText + `))),
line AS MATERIALIZED (
  SELECT CASE WHEN x.gate IS DISTINCT FROM k.k THEN {act front} WHEN NOT x.known THEN {act aside}
      WHEN x.partition_key IS NOT NULL AND ((SELECT b.id FROM {s}.gen_durable b WHERE b.partition_key = x.partition_key AND b.status = 'executing' LIMIT 1) IS NOT NULL
        OR (SELECT h.id FROM ` + headOf("x.partition_key", "$1", "c.now") + ` h) IS DISTINCT FROM x.id) THEN {act front}
      WHEN x.then_gate IS NOT NULL THEN {act step} ELSE {act claim} END AS act, k.more, x.i, k.take, k.free, k.n, k.used, k.weight, x.tid, x.partition_key, k.k, k.run,
    CASE WHEN k.placed THEN coalesce(k.numbers[x.i], x.i) END::int AS number, x.then_gate, x.id,
    k.name, k.rate, k.rate_per, k.burst, k.total_free, k.total_rate, k.total_per, k.total_burst, k.owes, k.debt, k.pace, x.cost
  FROM key k CROSS JOIN c CROSS JOIN o CROSS JOIN LATERAL (SELECT z.*, row_number() OVER () AS i FROM (
    SELECT g.ctid AS tid, g.id, g.partition_key, ` + p.known + ` AS known,
      ` + onlyGateText + ` AS gate, CASE WHEN k.run THEN ` + stepGateText + ` END AS then_gate,
      CASE WHEN g.labels ->> k.cost_label ~ '^[0-9]{1,7}$' THEN least(1000000, greatest(1, (g.labels ->> k.cost_label)::int)) ELSE 1 END AS cost
    FROM {s}.gen_durable g WHERE g.queue = $1 AND ` + inLine + ` AND g.gate = k.k AND g.id <> ALL(` + p.pass + `::bigint[])` + when(p.some, ` AND g.id = ANY($10::bigint[])`) + `
    ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT k.take` + when(p.locks, ` FOR NO KEY UPDATE OF g SKIP LOCKED`) + `) z) x),
facts AS MATERIALIZED (SELECT EXISTS (SELECT FROM line a WHERE a.act IN ({act aside}, {act front})) AS others, EXISTS (SELECT FROM key k WHERE k.more) AS more)`
}

// readLine reads the one row of lineSQL.
func (c *Claimed) readLine(rows pgx.Rows) error {
	var wait *int64
	var spent int64
	var moved int
	var crowded, ahead, yielded, rivals bool
	var last *string
	_, err := pgx.ForEachRow(rows, []any{nil, &moved, &c.Left, &c.More, &c.Cut, &wait, &crowded, &ahead, &yielded, &rivals, &last, &c.Turn.Used, &spent}, func() error {
		c.Crowded, c.Ahead = c.Crowded || crowded, c.Ahead || ahead
		c.Yielded, c.Rivals = yielded, rivals
		if c.Moved += moved; last != nil {
			c.Turn.After = *last
		}
		c.soon(wait)
		c.Took += duration(spent)
		return nil
	})
	return err
}

// soon notes that something becomes due in so many µs.
func (c *Claimed) soon(us *int64) {
	if us == nil {
		return
	}
	if d := max(0, duration(*us)); c.NextDue < 0 || d < c.NextDue {
		c.NextDue = d
	}
}
