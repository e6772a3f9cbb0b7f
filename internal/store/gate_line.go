package store

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// debtOf is the rest of a debt of row b of gate_keys by now, and paceOf the part of the rate that
// counts by now: it doubles in ten periods. The debt is paid off at the pace of before, which is
// the lower one.
//
// A debt from before the gate has last changed, at since, was made by another rate, and perhaps in
// another unit. It counts for a burst at most: so what the old rule has let begin is paid off, and
// nothing waits for longer than the new rule says.
//
// A clock that is set back pays nothing off until a poll has noticed it: see turnBackSQL.
func debtOf(n, per, burst, since string) string {
	return `CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < ` + since + ` THEN least(b.debt, ` + burst + `) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * ` + n + `::float8 / ` + per + ` * coalesce(b.pace, 1)) END`
}

// placesText is how many places the key of row b of gate_keys has at gate r. A gate that lets none
// begin lets none of such a key begin, either.
const placesText = `CASE WHEN r.places = 0 THEN 0 ELSE coalesce(b.places, r.places) END`

// paidIn is in how many µs so many tokens are paid off. It is bounded by some thirty years, since
// the debt times the period may be beyond a bigint, and an error would fail all claims.
func paidIn(tokens, n, per, pace string) string {
	return `least(1e15, ceil((` + tokens + `) * ` + per + ` / ` + n + ` / ` + pace + `))::bigint`
}

func paceOf(per string) string {
	return `least(1, b.pace * power(2, least(60, greatest(0, date_part('epoch', c.now - b.at)) * 100000 / ` + per + `)))`
}

var (
	lineSQL     = named("claim lined", lineText(false))
	lineSomeSQL = named("claim some lined", lineText(true))
	// lineWindowSQL lists the rows at which lineSQL looks, and locks none. $1 queue $2 most $3 most
	// keys $4 ids to pass over $5 to $9 the turns $10 to $12 the jumps
	lineWindowSQL = named("line window", lineLook{most: "$2", keys: "$3", pass: "$4", turns: 5, jumps: 10, known: `true`, yields: `false`}.text()+`
SELECT x.id FROM line x`)
)

// lineText claims rows in line at the gates that lockGatesSQL has locked.
//
//   - r: the rules, and per gate what all its keys together may still take (total), and what they
//     owe (owes). No other transaction changes that, under the lock. A total counts the rows that
//     have a place, so a gate that bounds all keys together gives as many places to each.
//   - party: the gates at which rows are in line, see partyText, each with where this process goes
//     on through its keys.
//   - walk: goes from key to key of each party in a loose index scan, behind the place where the
//     last claim of this process ended, once around at most, until it has met as many free places
//     as it looks for (most) in one turn of each key, or has visited so many keys. A key without a
//     place, without tokens or closed costs its visit, however many rows wait there. A gate that is
//     not locked, is closed as a whole, or has nothing left of what all its keys may take together
//     costs one visit, however many keys it has. A key whose gate is gone lets all its rows go.
//   - key: locks the row of gate_keys of each key with a rate, and takes its debt from there:
//     a transaction that throttles or closes the key changes that row, and holds up only this key.
//     If there are fewer keys than rows are wanted, each has several turns. numbers are the numbers
//     of its free places.
//   - line: the first rows of each key, locked as they are scanned, with what to do with each
//     (act). A row that another transaction has locked is passed over. It is act claim; act aside
//     if this worker does not know its machine, as for claimSQL; act front to go in front, where a
//     claim decides anew: one whose gate is another by now, since an operator has changed them, or
//     since who inserted it did not know better, and one that is no longer the head of its
//     partition key; act step at a gate for whole runs, to go in line at the gate of its step, with
//     its place. What most later parts ask for stands in the first columns: Postgres takes a stored
//     row apart from its front.
//   - facts: whether there are rows that are not to be claimed, and keys that have to heed more
//     than their places. If neither, the parts that are about them do not look at the rows.
//   - paid: of the keys that have to heed more than their places, the rows in order; of all keys if
//     some row is not to be claimed, since that one takes no turn.
//   - sums: of those, the ones whose costs the tokens of their key cover. One that costs more than
//     the burst begins when nothing is owed, and is paid off.
//   - may: of these, what the totals of the gates leave, and all rows of the other keys, which need
//     no sums. Rows behind one that a total does not cover may not begin either: the sums run
//     over all keys of the gate in their turns.
//   - front: what the front has for the same claim, locking nothing, if something may begin here.
//     It looks where gatedSQL will, which comes next and takes what is left to it. A row that
//     gatedSQL cannot claim after all, since another transaction has it locked, leaves the claim
//     short, and the next one does not look at the front: see Turn.Blind.
//   - merged: both in the order that Turn has, and picked: the rows in line among the first that
//     are wanted. Those
//     with a partition key are updated in key order, against deadlocks on the busy index (T85); the
//     others need no order.
//   - turn: where the next claim goes on, for each party. Behind the last row that was picked,
//     within its key's turn: rows after it may have been met, and have had nothing, as if a total
//     was used up. If nothing was picked, where this claim began: a row whose turn it is, and that
//     costs more than is left of a total, has the next turn, too. If the claim has visited too many
//     keys in vain, or their rows were locked, behind the last key that was met, so that no key is
//     always met in vain.
//   - pay: adds to the debts. A key that nothing has begun at has no row to lock. If a transaction
//     that throttles it inserts one meanwhile, pay meets that row, and keeps its pace. If that one
//     does not commit, pay fails: see claimPaid.
//
// It counts places with a snapshot that is later than the lock of the gate: see gate.go. All that a
// claim needs it gets in one update, or nothing. The place of a run is no part of that: act step
// keeps it for an instance that goes on to wait at the gate of its step. No instance waits the
// other way round, so no two wait for each other.
//
// A partition key's row is claimed on the same condition as in claimSQL: it is locked, it is the
// head of its key in the queue, and nothing executes the key. As there, the unique index
// gen_durable_busy refuses the claim if another transaction has just claimed another of the key.
//
// $1 queue $2 worker $3 machines $4 most rows to claim $5 most keys to visit $6 ids to pass over $7
// to $11 the turns $12 lease, µs $13 to $15 the place behind which the front is looked at $16
// whether it is $17 its pass $18 starts for the party that has waited longest $19 whether to yield,
// or the only ids, if it is for some $20 to $22 the jumps.
func lineText(some bool) string {
	return lineLook{most: "$4", keys: "$5", pass: "$6", turns: 7, jumps: 20, yields: either(some, `false`, `$19::bool`), locks: true, some: some,
		known: `(g.fsm || '/' || g.fsm_version) = ANY($3::text[])`}.text() + `,
paid AS MATERIALIZED (
  SELECT a.*, row_number() OVER (PARTITION BY a.k ORDER BY a.i) AS j, sum(a.cost) OVER (PARTITION BY a.k ORDER BY a.i) AS spent
  FROM line a WHERE (SELECT f.more OR f.others FROM facts f) AND a.act IN ({act claim}, {act step}) AND (a.more OR (SELECT others FROM facts))),
sums AS MATERIALIZED (
  SELECT p.*, row_number() OVER (PARTITION BY p.name ORDER BY p.turn, p.n, p.k, p.j) AS of_gate, sum(p.cost) OVER (PARTITION BY p.name ORDER BY p.turn, p.n, p.k, p.j) AS gate_spent
  FROM (SELECT p.*, (p.j + p.used + p.weight - 1) / p.weight AS turn FROM paid p) p
  WHERE p.rate IS NULL OR p.debt + p.spent - p.cost + least(p.cost, p.burst) <= p.burst),
may AS MATERIALIZED (
  SELECT x.party, x.priority, x.eligible_at, x.partition_key, x.act, x.tid, x.number, x.k, x.run, x.then_gate, x.n, x.i AS j, (x.i + x.used + x.weight - 1) / x.weight AS turn, x.used, x.weight,
    NULL::text AS name, NULL::int AS rate, NULL::int AS total_rate, NULL::int AS cost, NULL::float8 AS debt, NULL::float8 AS owes, NULL::float8 AS pace
  FROM line x WHERE x.act IN ({act claim}, {act step}) AND NOT x.more AND NOT (SELECT others FROM facts)
  UNION ALL
  SELECT s.party, s.priority, s.eligible_at, s.partition_key, s.act, s.tid, s.number, s.k, s.run, s.then_gate, s.n, s.j, s.turn, s.used, s.weight,
    s.name, s.rate, s.total_rate, s.cost, s.debt, s.owes, s.pace
  FROM sums s WHERE (s.total_free IS NULL OR s.of_gate <= s.total_free)
    AND (s.total_rate IS NULL OR s.owes + s.gate_spent - s.cost + least(s.cost, s.total_burst) <= s.total_burst)),
rest AS MATERIALIZED (SELECT coalesce(sum(q.weight), 0)::int AS weight FROM party q WHERE q.party IN (SELECT m.party FROM may m)),
` + levelText("$13", "$14", "$15") + `,
front AS MATERIALIZED (
  SELECT f.priority, f.eligible_at, f.id FROM (
    SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN o CROSS JOIN LATERAL (
      SELECT g.priority, g.eligible_at, g.id, (g.fsm || '/' || g.fsm_version) = ANY($3::text[]) AS known, ` + onlyGateText + ` AS gate
      FROM {s}.gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane front}
        AND g.priority = level.p AND (g.eligible_at, g.id) >= (level.at, level.id) AND g.eligible_at <= statement_timestamp()
      ORDER BY g.eligible_at, g.id LIMIT (SELECT want FROM c)) r LIMIT (SELECT want FROM c)) f
  WHERE f.known AND f.gate IS NULL AND $16::bool AND (SELECT weight FROM rest) > 0),
merged AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY NOT (m.rank <= $18::int AND m.since = m.oldest), m.urgency, m.tag, m.party) AS nth, m.* FROM (
    SELECT m.*, min(m.since) OVER () AS oldest FROM (
      SELECT m.party, m.partition_key, m.act, m.tid, m.number, m.k, m.run, m.then_gate, m.j, m.used, m.weight, m.name, m.rate, m.total_rate, m.cost, m.debt, m.owes, m.pace,
        row_number() OVER w AS rank, first_value(m.eligible_at) OVER w AS since,
        min(m.priority) OVER (PARTITION BY m.party ORDER BY m.turn, m.n, m.j ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS urgency,
        q.pass + (row_number() OVER w - 1)::float8 / q.weight AS tag
      FROM may m JOIN party q ON q.party = m.party WINDOW w AS (PARTITION BY m.party ORDER BY m.turn, m.n, m.j)
      UNION ALL
      SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        row_number() OVER w, first_value(f.eligible_at) OVER w, f.priority, $17::float8 + (row_number() OVER w - 1)::float8 / (SELECT weight FROM rest)
      FROM front f WINDOW w AS (ORDER BY f.priority, f.eligible_at, f.id)) m) m),
picked AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY m.nth) AS seat, m.* FROM merged m WHERE m.nth <= (SELECT want FROM c) AND m.tid IS NOT NULL),
moved AS (
  UPDATE {s}.gen_durable g SET
    status = CASE WHEN t.act = {act claim} THEN 'executing' ELSE g.status END,
    pick_lane = CASE t.act WHEN {act aside} THEN {lane aside} WHEN {act step} THEN {lane line} ELSE {lane front} END,
    gate = CASE WHEN t.act = {act claim} AND NOT t.run THEN g.gate WHEN t.act = {act step} THEN t.then_gate END,
    place = CASE WHEN t.act = {act claim} AND NOT t.run THEN t.number END,
    run_gate = CASE WHEN t.run THEN t.k ELSE g.run_gate END, run_place = CASE WHEN t.run THEN t.number ELSE g.run_place END,
    seat = CASE WHEN t.act = {act claim} THEN (SELECT seats FROM c)[(SELECT had FROM c) + t.seat] END,
    locked_by = CASE WHEN t.act = {act claim} THEN $2::text END,
    lease_expires_at = CASE WHEN t.act = {act claim} THEN (SELECT clock_timestamp()) + $12::bigint * interval '1 microsecond' END,
    claim_token = CASE WHEN t.act = {act claim} THEN {next token} ELSE g.claim_token END,
    updated_at = CASE WHEN t.act = {act claim} THEN statement_timestamp() ELSE g.updated_at END
  FROM (SELECT p.tid, p.act, p.k, p.run, p.then_gate, p.number, p.seat FROM picked p WHERE p.partition_key IS NULL
    UNION ALL
    SELECT a.tid, a.act, NULL, false, NULL, NULL, NULL FROM line a WHERE a.act IN ({act aside}, {act front}) AND (SELECT others FROM facts)
    UNION ALL
    (SELECT p.tid, p.act, p.k, p.run, p.then_gate, p.number, p.seat FROM picked p WHERE p.partition_key IS NOT NULL ORDER BY p.partition_key)) t
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
  SELECT count(*) FILTER (WHERE act > {act claim}) AS moved, count(*) FILTER (WHERE act IN ({act aside}, {act front})) AS left,
    array_agg(id) FILTER (WHERE act = {act claim}) AS ids, array_agg(id) FILTER (WHERE act = {act claim} AND awaits) AS awaiting,
    array_agg(ARRAY[id, fencing_token]) FILTER (WHERE fencing_token IS NOT NULL) AS fencing FROM moved),
turn AS (
  SELECT array_agg(t.party) AS parties, array_agg(CASE WHEN t.goes THEN t.last ELSE coalesce(t.k, t.after) END) AS afters,
    array_agg(CASE WHEN t.goes THEN 0 WHEN t.k IS NULL THEN t.used ELSE (t.j + t.had) % t.weight END) AS used,
    array_agg(t.took) AS took, array_agg(t.share) AS shares, (SELECT weight FROM rest) AS may
  FROM (
    SELECT q.party, q.after, q.used, q.weight AS share, coalesce(n.took, 0)::int AS took, l.k, l.j, l.used AS had, l.weight, m.last,
      m.met < q.most AND m.n >= q.keys AND CASE WHEN l.k IS NULL THEN a.party IS NULL ELSE n.took = a.rows END AS goes
    FROM party q JOIN met m ON m.party = q.party
    LEFT JOIN (SELECT x.party, count(*) AS rows FROM (SELECT x.party FROM line x WHERE x.act IN ({act claim}, {act step}) AND NOT x.more AND NOT (SELECT others FROM facts)
      UNION ALL SELECT s.party FROM sums s) x GROUP BY x.party) a ON a.party = q.party
    LEFT JOIN (SELECT p.party, count(*) AS took FROM picked p GROUP BY p.party) n ON n.party = q.party
    LEFT JOIN (SELECT DISTINCT ON (p.party) p.party, p.k, p.j, p.used, p.weight FROM picked p ORDER BY p.party, p.nth DESC) l ON l.party = q.party) t)
SELECT length(set_config('gendurable.claimed', (current_setting('gendurable.claimed')::bigint[] || coalesce(sum.ids, '{}'))::text, false) ||
    set_config('gendurable.awaiting', (current_setting('gendurable.awaiting')::bigint[] || coalesce(sum.awaiting, '{}'))::text, false) ||
    set_config('gendurable.fencing', (current_setting('gendurable.fencing')::bigint[] || coalesce(sum.fencing, '{}'))::text, false) ||
    set_config('gendurable.lined', coalesce(sum.ids, '{}')::text, false)),
  sum.moved, sum.left,
  EXISTS (SELECT FROM line x WHERE x.i = x.take AND x.take < x.free) OR EXISTS (SELECT FROM met m JOIN party q ON q.party = m.party WHERE m.met > 0 AND (m.met >= q.most AND q.most < (SELECT want FROM c) OR m.n >= q.keys)),
  EXISTS (SELECT FROM met m JOIN party q ON q.party = m.party WHERE m.met < q.most AND m.n >= q.keys),
  least((SELECT min(w.wait) FROM walk w), (SELECT min(` + paidIn("u.tokens", "u.rate", "u.rate_per", "coalesce(u.pace, 1)") + `) FROM (
      SELECT p.rate, p.rate_per, p.pace, p.debt + p.spent - p.burst + CASE WHEN p.debt + p.spent - p.cost + least(p.cost, p.burst) > p.burst
        THEN least(p.cost, p.burst) - p.cost ELSE 1 END AS tokens FROM paid p WHERE p.rate IS NOT NULL) u WHERE u.tokens > 0),
    (SELECT min(` + paidIn("u.owes + u.gate_spent - u.cost + least(u.cost, u.total_burst) - u.total_burst", "u.total_rate", "u.total_per", "1") + `)
      FROM sums u WHERE u.owes + u.gate_spent - u.cost + least(u.cost, u.total_burst) > u.total_burst)),
  EXISTS (SELECT FROM walk w WHERE w.crowded), EXISTS (SELECT FROM walk w WHERE w.ahead),
  EXISTS (SELECT FROM walk w WHERE w.yielded), EXISTS (SELECT FROM walk w WHERE w.rivals),
  t.parties, t.afters, t.used, t.took, t.shares, t.may, (SELECT count(*) FROM merged m WHERE m.nth <= (SELECT want FROM c) AND m.tid IS NULL)::int,
  (date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
  (SELECT array_agg(p.then_gate) FROM picked p WHERE p.act = {act step}), v.keys, v.waits
FROM sum CROSS JOIN turn t CROSS JOIN (` + vainText(20) + `) v`
}

// headAt is the first in line at key x.k in a queue.
func headAt(queue string) string {
	return `SELECT g.priority, g.eligible_at, g.id FROM {s}.gen_durable g WHERE g.queue = ` + queue + ` AND ` + inLine + ` AND g.gate = x.k ` + lineOrder + ` LIMIT 1`
}

// lineLook has the parameters of the rows in line at which a claim looks, and whether it locks
// them.
type lineLook struct {
	most, keys, pass string
	turns            int    // the first of the five parameters of a Turn: parties, keys, used, passes, now
	jumps            int    // the first of the three parameters of Jumps
	known            string // the condition that this worker knows the machine of row g
	yields           string // whether to leave places to other queues
	locks            bool
	some             bool // only those of given ids
}

// partyText finds the parties of a queue: the gates at which rows are in line there. The keys of a
// gate with a label are one party, name/, and the line at a gate without one is another. Each goes
// round its own keys. A claim looks at about twice as many rows as it wants in all of them
// together, and at four in each if they are not very many. So each gate is seen, and a gate that
// lets no row begin costs a visit.
func (p lineLook) partyText() string {
	return fmt.Sprintf(`head(k) AS (
  SELECT (SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND `+inLine+` ORDER BY g.queue, g.gate USING ~<~ LIMIT 1)
  UNION ALL SELECT (SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND `+inLine+`
      AND g.gate ~>=~ CASE WHEN strpos(h.k, '/') > 0 THEN split_part(h.k, '/', 1) || '0' ELSE h.k || chr(1) END
    ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) FROM head h WHERE h.k IS NOT NULL),
party AS MATERIALIZED (
  SELECT q.*, least(c.want, greatest(least(4, ceil(256.0 / q.parties)), ceil(2.0 * c.want / q.parties)))::bigint AS most, greatest(10, ceil(%[1]s::numeric / q.parties))::int AS keys,
    %[7]s AS first
  FROM c CROSS JOIN (
    SELECT h.party, h.party AS lo, h.hi, t.after, CASE WHEN t.used > 0 THEN t.after ELSE coalesce(t.after || chr(1), h.party) END AS start,
      coalesce(t.used, 0) AS used, greatest(t.pass, $%[6]d::float8) AS pass, coalesce(r.weight, 1) AS weight, count(*) OVER () AS parties
    FROM (SELECT split_part(h.k, '/', 1) AS name, CASE WHEN strpos(h.k, '/') > 0 THEN split_part(h.k, '/', 1) || '/' ELSE h.k END AS party,
        CASE WHEN strpos(h.k, '/') > 0 THEN split_part(h.k, '/', 1) || '0' ELSE h.k || chr(1) END AS hi FROM head h WHERE h.k IS NOT NULL) h
    LEFT JOIN r ON r.name = h.name
    LEFT JOIN (SELECT t.party, nullif(t.after, '') AS after, t.used, t.pass
      FROM unnest($%[2]d::text[], $%[3]d::text[], $%[4]d::int[], $%[5]d::float8[]) t(party, after, used, pass)) t ON t.party = h.party) q)`, p.keys, p.turns, p.turns+1, p.turns+2, p.turns+3, p.turns+4, jumpText("q.lo", p.jumps))
}

// unpaidText are the keys without a row that another transaction is about to insert.
const unpaidText = `current_setting('gendurable.unpaid')::text[]`

// rivalsText are the other queues in which rows are in line and which a live worker serves, up to
// sixteen of them.
//
// Each queue has a separate line at a key, and the process that ends a claim claims again at once.
// Alone, that gives every place to the queue that has had it before, for as long as it has rows in
// line. So a claim that yields leaves one place, or one token, of a key to another queue if the
// first row there is ahead of this queue's first, by priority, time and id, as in one queue. At
// what all keys of a gate share it leaves one if another queue has rows in line at the gate. A
// claim that finds no place at such a key reports that it has rivals, and is repeated soon, so that
// it meets the place that is left to it.
//
// No claim waits for another queue, which may have no slots, or not be able to begin its first row:
// the scheduler has its claims yield for a part of the time only, see yieldFor.
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
	return `WITH RECURSIVE c AS MATERIALIZED (` + allowText(p.most) + `),
o AS MATERIALIZED (` + onlyText + `),
` + p.rivalsText() + `,
r AS MATERIALIZED (
  SELECT r.name, r.queue, r.label, r.run, coalesce(r.places, r.total) AS places, r.rate, r.rate_per, r.rate_burst, r.cost_label, r.total_rate, r.total_rate_per, r.total_rate_burst,
    r.name = ANY(current_setting('gendurable.gates')::text[]) AND (r.total_rate IS NULL OR b.at IS NOT NULL OR e.key IS NULL AND r.name <> ALL(` + unpaidText + `)) AS mine,
    r.updated_at, coalesce(b.at > c.now, false) AS ahead, e.closed_until AS closed, e.weight, d.owes, y.shared, least(CASE WHEN r.total IS NULL THEN NULL
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
` + p.partyText() + `,
walk AS (
  SELECT 0 AS n, q.party, q.start AS lo, false AS over, NULL::text AS k, false AS around, NULL::text AS name, false AS run, NULL::int AS places, NULL::int[] AS taken,
    NULL::int AS rate, NULL::bigint AS rate_per, NULL::int AS burst, NULL::text AS cost_label, NULL::bigint AS total_free, NULL::int AS total_rate,
    NULL::bigint AS total_per, NULL::int AS total_burst, NULL::float8 AS owes, 1 AS weight, 0 AS used, 0::bigint AS free, 0::bigint AS met,
    NULL::bigint AS wait, false AS crowded, NULL::timestamptz AS since, false AS ahead,
    false AS yielded, false AS rivals FROM party q
  UNION ALL
  SELECT v.n, v.party, v.lo, v.over, v.k, v.around, v.name, v.run, v.places, v.taken, v.rate, v.rate_per, v.burst, v.cost_label, v.total_free, v.total_rate,
    v.total_per, v.total_burst, v.owes, v.weight, v.used, v.free, v.met + least(v.free, v.weight - v.used), v.wait, v.crowded, v.since, v.ahead, v.yielded, v.rivals
  FROM (
    SELECT w.n + 1 AS n, w.party, x.k || chr(1) AS lo, coalesce(NOT r.mine OR r.closed > c.now OR r.places <= 0 OR r.total_free <= 0, false) AS over, x.k, x.around,
      r.name, coalesce(r.run, false) AS run, m.places, h.taken, r.rate, r.rate_per, r.rate_burst AS burst, r.cost_label, r.total_free, r.total_rate,
      r.total_rate_per AS total_per, r.total_rate_burst AS total_burst, r.owes, coalesce(b.weight, 1) AS weight,
      CASE WHEN w.n = 0 AND x.k = q.after THEN least(q.used, coalesce(b.weight, 1) - 1) ELSE 0 END AS used, w.met,
      CASE WHEN r.name IS NULL THEN c.want WHEN NOT r.mine OR r.closed > c.now OR b.closed_until > c.now THEN 0
        ELSE greatest(0, least(c.want, f.of_key - coalesce(y.behind, false)::int, r.total_free)) END::bigint AS free,
      CASE WHEN NOT r.mine THEN NULL
        WHEN r.closed > c.now OR b.closed_until > c.now THEN (date_part('epoch', greatest(r.closed, b.closed_until) - c.now) * 1000000)::bigint
        WHEN d.debt + 1 > r.rate_burst THEN ` + paidIn("d.debt + 1 - r.rate_burst", "r.rate", "r.rate_per", "coalesce(b.pace, 1)") + `
        WHEN r.owes + 1 > r.total_rate_burst THEN ` + paidIn("r.owes + 1 - r.total_rate_burst", "r.total_rate", "r.total_rate_per", "1") + ` END AS wait,
      coalesce(r.mine AND (cardinality(h.taken) >= m.places OR r.total_free <= 0), false) AS crowded,
      r.updated_at AS since, coalesce(b.at > c.now OR r.ahead, false) AS ahead,
      coalesce(r.mine AND (y.behind AND f.of_key > 0 OR r.shared AND r.total_free >= 0 AND r.total_free < c.want), false) AS yielded,
      coalesce(r.mine AND (f.of_key <= 0 AND y.some OR r.shared AND r.total_free <= 0), false) AS rivals
    FROM (SELECT * FROM walk) w JOIN party q ON q.party = w.party CROSS JOIN c
    CROSS JOIN LATERAL (
      SELECT coalesce(f.k, CASE WHEN NOT w.around THEN (
          SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND ` + inLine + ` AND g.gate ~>=~ q.first AND g.gate ~<~ q.hi
          ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) END) AS k,
        w.around OR f.k IS NULL AS around
      FROM (SELECT (SELECT g.gate FROM {s}.gen_durable g WHERE g.queue = $1 AND ` + inLine + ` AND g.gate ~>=~ j.lo AND g.gate ~<~ q.hi
        ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) AS k FROM (SELECT ` + jumpText("w.lo", p.jumps) + ` AS lo OFFSET 0) j OFFSET 0) f OFFSET 0) x
    LEFT JOIN r ON r.name = split_part(x.k, '/', 1)
    LEFT JOIN LATERAL (SELECT b.* FROM {s}.gate_keys b WHERE b.key = x.k OFFSET 0) b ON r.mine
    LEFT JOIN LATERAL (SELECT ` + debtOf("r.rate", "r.rate_per", "r.rate_burst", "r.updated_at") + ` AS debt OFFSET 0) d ON r.rate IS NOT NULL
    CROSS JOIN LATERAL (SELECT ` + placesText + ` AS places) m
    LEFT JOIN LATERAL (SELECT CASE WHEN r.run
      THEN ARRAY(SELECT g.run_place FROM {s}.gen_durable g WHERE g.run_gate = x.k AND g.run_place IS NOT NULL AND g.finished_at IS NULL)
      ELSE ARRAY(SELECT g.place FROM {s}.gen_durable g WHERE g.gate = x.k AND g.place IS NOT NULL) END AS taken OFFSET 0) h ON r.mine AND m.places IS NOT NULL
    CROSS JOIN LATERAL (SELECT least(m.places - cardinality(h.taken), floor(r.rate_burst - d.debt))::bigint AS of_key OFFSET 0) f
    LEFT JOIN LATERAL (SELECT count(*) > 0 AS some, bool_or((z.priority, z.eligible_at, z.id) < (a.priority, a.eligible_at, a.id)) AS behind
      FROM rival e CROSS JOIN LATERAL (` + headAt("e.queue") + `) z CROSS JOIN LATERAL (` + headAt("$1") + `) a) y ON r.mine AND r.queue IS NULL AND f.of_key <= c.want
    WHERE w.met < q.most AND w.n < q.keys AND NOT w.over AND x.k IS NOT NULL AND NOT (x.around AND x.k ~>=~ q.start)) v),
met AS MATERIALIZED (
  SELECT w.party, max(w.met) AS met, max(w.n) AS n, greatest(1, ceil(max(q.most)::numeric / greatest(1, max(w.met))))::int AS turns, (array_agg(w.k ORDER BY w.n DESC))[1] AS last
  FROM walk w JOIN party q ON q.party = w.party GROUP BY w.party),
key AS MATERIALIZED (
  SELECT w.party, w.n, w.k, w.name, w.run, w.places IS NOT NULL AS placed, w.rate, w.rate_per, w.burst, w.cost_label, w.total_free, w.total_rate, w.total_per,
    w.total_burst, w.owes, w.weight, w.used, w.free, least(w.free, w.weight * m.turns - w.used) AS take, d.debt, b.pace_now AS pace,
    num_nonnulls(w.rate, w.total_free, w.total_rate) > 0 AS more,
    CASE WHEN cardinality(w.taken) > 0 THEN ARRAY(SELECT f.n FROM (
      SELECT generate_series(1, least(w.places, cardinality(w.taken) + least(w.free, w.weight * m.turns - w.used)))::int
      EXCEPT SELECT unnest(w.taken)) f(n) ORDER BY f.n) END AS numbers
  FROM walk w JOIN met m ON m.party = w.party CROSS JOIN c
  LEFT JOIN LATERAL (SELECT b.debt, b.at, b.pace, ` + paceOf("w.rate_per") + ` AS pace_now FROM {s}.gate_keys b
    WHERE w.rate IS NOT NULL AND b.key = w.k` + when(p.locks, ` FOR NO KEY UPDATE OF b SKIP LOCKED`) + `) b ON true
  LEFT JOIN LATERAL (SELECT ` + debtOf("w.rate", "w.rate_per", "w.burst", "w.since") + ` AS debt OFFSET 0) d ON w.rate IS NOT NULL
  WHERE w.free > 0 AND (w.rate IS NULL OR b.at IS NOT NULL OR NOT EXISTS (SELECT FROM {s}.gate_keys e WHERE e.key = w.k) AND w.k <> ALL(` + unpaidText + `))),
line AS MATERIALIZED (
  SELECT CASE WHEN x.gate IS DISTINCT FROM k.k THEN {act front} WHEN NOT x.known THEN {act aside}
      WHEN x.partition_key IS NOT NULL AND ((SELECT b.id FROM {s}.gen_durable b WHERE b.partition_key = x.partition_key AND b.status = 'executing' LIMIT 1) IS NOT NULL
        OR (SELECT h.id FROM ` + headOf("x.partition_key", "$1", "c.now") + ` h) IS DISTINCT FROM x.id) THEN {act front}
      WHEN x.then_gate IS NOT NULL THEN {act step} ELSE {act claim} END AS act, k.more, x.i, k.take, k.free, k.n, k.used, k.weight, x.tid, x.partition_key, k.party, x.priority, x.eligible_at, k.k, k.run,
    CASE WHEN k.placed THEN coalesce(k.numbers[x.i], x.i) END::int AS number, x.then_gate, x.id,
    k.name, k.rate, k.rate_per, k.burst, k.total_free, k.total_rate, k.total_per, k.total_burst, k.owes, k.debt, k.pace, x.cost
  FROM key k CROSS JOIN c CROSS JOIN o CROSS JOIN LATERAL (SELECT z.*, row_number() OVER () AS i FROM (
    SELECT g.ctid AS tid, g.id, g.partition_key, g.priority, g.eligible_at, ` + p.known + ` AS known,
      ` + onlyGateText + ` AS gate, CASE WHEN k.run THEN ` + stepGateText + ` END AS then_gate,
      CASE WHEN g.labels ->> k.cost_label ~ '^[0-9]{1,7}$' THEN least(1000000, greatest(1, (g.labels ->> k.cost_label)::int)) ELSE 1 END AS cost
    FROM {s}.gen_durable g WHERE g.queue = $1 AND ` + inLine + ` AND g.gate = k.k AND g.id <> ALL(` + p.pass + `::bigint[])` + when(p.some, ` AND g.id = ANY($19::bigint[])`) + `
    ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT k.take` + when(p.locks, ` FOR NO KEY UPDATE OF g SKIP LOCKED`) + `) z) x),
facts AS MATERIALIZED (SELECT EXISTS (SELECT FROM line a WHERE a.act IN ({act aside}, {act front})) AS others, EXISTS (SELECT FROM key k WHERE k.more) AS more)`
}

// readLine reads the one row of lineSQL.
func (c *Claimed) readLine(rows pgx.Rows) error {
	var wait *int64
	var spent int64
	var moved int
	var crowded, ahead, yielded, rivals bool
	var t turned
	var entered, vain []string
	var waits []*int64
	_, err := pgx.ForEachRow(rows, []any{nil, &moved, &c.Left, &c.More, &c.Cut, &wait, &crowded, &ahead, &yielded, &rivals,
		&t.parties, &t.afters, &t.used, &t.took, &t.shares, &t.may, &t.reserved, &spent, &entered, &vain, &waits}, func() error {
		c.Entered = append(c.Entered, entered...)
		for i, key := range vain {
			c.Vain = append(c.Vain, BlockedKey{key, waits[i]})
		}
		c.Crowded, c.Ahead = c.Crowded || crowded, c.Ahead || ahead
		c.Yielded, c.Rivals = yielded, rivals
		c.Moved += moved
		c.turned = t
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
