package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// claimForm is a form of the statement that claims.
type claimForm struct {
	gated  bool // it heeds gates: see gate_claim.go
	plain  bool // it claims only while no row at which it looks has a partition key: see ClaimParams.Plain
	others bool // it passes over rows with given ids: see claim_apart.go
	some   bool // it claims only among rows with given ids
}

var (
	claimSQL       = named("claim", claimForm{}.text())
	plainSQL       = named("claim plain", claimForm{plain: true}.text())
	claimOthersSQL = named("claim others", claimForm{others: true}.text())
	claimSomeSQL   = named("claim some", claimForm{some: true}.text())
	gatedSQL       = named("claim gated", claimForm{gated: true}.text())
	gatedOthersSQL = named("claim others gated", claimForm{gated: true, others: true}.text())
	gatedSomeSQL   = named("claim some gated", claimForm{gated: true, some: true}.text())
)

// text turns the most urgent runnable rows of one queue into executing ones. Rows at the front of
// the order that cannot run are the whole cost of a pick, so each is moved out of the front once,
// by a hint, its lane: lane key waits behind its partition key, and lane aside is set aside because
// a worker that saw it does not know its machine. The lane is only a hint. The statement itself
// verifies that a row is the head of a key that nothing executes, so a wrong lane can delay a row,
// and never let it overtake.
//
//   - level: the queue's distinct priorities, by a loose index scan, each with its first row. Per
//     priority the statement walks only rows that are due (T94), from that first row on. Before
//     that row are the entries of rows that others have claimed, up to a million of them between
//     two vacuums. Even stepping over them once, here, is more than most claims do: they resume
//     behind a place ($7 to $9). Priorities that are more urgent than that place's are still looked
//     at from their front.
//   - seen: the window, locked as it is scanned: first what is in front, then the rows set aside
//     whose machine this worker does know, a window of each. Rows that wait for their key are among
//     the latter. SKIP LOCKED: nothing here waits for another transaction. NO KEY: an open signal
//     transaction, whose foreign key holds KEY SHARE, does not hide its target (T8). It is one CTE,
//     since each through which a row passes copies it.
//   - probe: per key in the window its anchor, which is the row that executes the key, in any
//     queue, or else the key's head in this queue.
//   - held: the anchors, locked. A row goes to lane key (act behind) behind an anchor that this
//     transaction has locked: the transaction that ends the anchor runs promoteSQL afterwards, and
//     sees the row. An anchor that is itself in lane key comes forward (act forward).
//   - A row is blocked (act blocked) if another transaction has its anchor locked. The end of that
//     anchor may miss it, so it stays in front: most locks last for a moment. But a transaction
//     outside of the engine may last, and as many blocked rows as the window has would keep the
//     rest of the queue from being looked at. So if the claim before has met blocked rows, $10 says
//     to move them to lane key, too, and the caller has to promote their keys: see settleSQL.
//   - The UPDATE goes in key order, against deadlocks on the busy index between picks of two queues
//     that share keys (T85): todo drives it, row by row. It joins by ctid, which is right only
//     because every row was locked above without waiting (T99). With a bare LIMIT $2 the generic
//     plan would hash-join the table, so there is a LIMIT 1000 inside.
//
// A claim of a process that knows of gates puts a row that is behind a gate in line there, where
// another would claim it (act line, lane line), once: a hundred thousand rows at a gate without
// places then block no other row. Only a row that would be claimed comes into a line, so of a
// partition key only the head. It is locked here, so the rows of the key that are moved to lane key
// behind it are promoted when its claim ends, as behind any anchor. A process that knows of no gate
// claims without heeding any: see Poll for how soon it knows.
//
// Delayed instances get in line only when they are due. If one tenant has 100,000 that are due at
// once, claims put a thousand in line at a time, and rows that become due meanwhile are behind them
// all. So such a claim, whose window is wide, also looks at the last 200 rows that are due, and
// puts those in line that are behind a gate. It claims none of them: that would be out of turn.
//
// The claim token is drawn in SET, for claimed rows only. It does not order a key's holders: it is
// drawn before the row has its entry in the unique index of executing keys, and a claim that is
// held up in between goes on with a smaller token after a later one has come and gone. So keyed
// rows have a separate fencing token, drawn in RETURNING. Postgres evaluates that when the new
// row's index entries are in, and from then until the claim has ended no other claim has such an
// entry. The sequence is drawn from in the order of time (CACHE 1), so each holder's token is
// greater than the token of the holder before. It is not stored: the fence goes by the claim token.
//
// The answer is one short row, so that a client that does not read never keeps the server from the
// COMMIT. Settings of the session pass the claimed rows on to the next transaction: see look.
//
// The row has these columns: an unused one; how many rows were moved without being claimed; how
// many blocked rows were left in front; some of the machines whose rows were set aside; in how many
// microseconds the queue's next row becomes eligible, so that the scheduler sleeps no longer (a row
// that came due since the statement began is past, and a full claim does not look, since there may
// be more in any case); how long the statement took; how many rows were claimed; the place of the
// last of these, behind which the next claim may go on while this one's rows are being read; and
// whether a row at which it looked has a partition key.
//
// $1 queue $2 window $3 worker $4 machines as name/version $5 most rows to claim $6 lease, µs $7 $8
// $9 place in the order to look behind $10 whether to move blocked rows $11 the ids of others, or
// of some.
func (f claimForm) text() string {
	return f.window(claimLook) + either(f.plain, plainText, `,
keyed AS MATERIALIZED (
  SELECT DISTINCT ON (partition_key) partition_key AS k, id AS first
  FROM seen WHERE partition_key IS NOT NULL ORDER BY partition_key, priority, eligible_at, id),
probe AS MATERIALIZED (
  SELECT k, first, b.id AS busy, h.id AS head FROM keyed
  LEFT JOIN LATERAL (SELECT g.id FROM {s}.gen_durable g WHERE g.partition_key = k AND g.status = 'executing' LIMIT 1) b ON true
  LEFT JOIN LATERAL `+headOf("k", "$1", "statement_timestamp()")+` h ON b.id IS NULL),
held AS MATERIALIZED (
  SELECT a.id, a.ctid AS tid, a.pick_lane, a.status, a.priority, a.eligible_at FROM {s}.gen_durable a
  WHERE a.id = ANY(ARRAY(SELECT coalesce(busy, head) FROM probe WHERE busy IS NOT NULL OR head <> first))
    AND (a.status = 'executing' OR a.status = 'runnable' AND NOT a.paused AND a.eligible_at <= statement_timestamp())
  FOR NO KEY UPDATE OF a SKIP LOCKED),
todo AS MATERIALIZED (
  SELECT tid, id, partition_key, act,`+when(f.gated, ` gate,`)+` row_number() OVER (PARTITION BY act ORDER BY priority, eligible_at, id) AS n, priority, eligible_at FROM (
    SELECT w.tid, w.id, w.partition_key, w.priority, w.eligible_at,`+when(f.gated, ` w.gate,`)+`
      CASE WHEN NOT w.known THEN {act aside}
           WHEN w.partition_key IS NULL OR p.busy IS NULL AND p.head = w.id THEN `+either(f.gated, `CASE WHEN w.gate IS NULL THEN {act claim} ELSE {act line} END`, `{act claim}`)+`
           WHEN w.id <> p.first OR a.status = 'executing'
             OR `+when(!f.narrowed(), `a.pick_lane <> {lane key} AND `)+`(a.priority, a.eligible_at, a.id) < (w.priority, w.eligible_at, w.id) THEN {act behind}
           WHEN a.id IS NULL AND coalesce(p.busy, p.head) IS NOT NULL THEN {act blocked} END AS act
    FROM seen w LEFT JOIN probe p ON p.k = w.partition_key LEFT JOIN held a ON a.id = coalesce(p.busy, p.head)) s
  WHERE act IS NOT NULL`+when(!f.narrowed(), `
  UNION ALL SELECT tid, id, NULL, {act forward},`+when(f.gated, ` NULL,`)+` 1, priority, eligible_at FROM held WHERE pick_lane = {lane key}`)+`
  ORDER BY partition_key)`) + `,
moved AS (
  UPDATE {s}.gen_durable g SET
    status = CASE WHEN t.act = {act claim} THEN 'executing' ELSE g.status END,
    pick_lane = CASE t.act WHEN {act behind} THEN {lane key} WHEN {act aside} THEN {lane aside} WHEN {act blocked} THEN {lane key}` +
		when(f.gated, ` WHEN {act line} THEN {lane line}`) + ` ELSE {lane front} END,` + `` + when(f.gated, ` gate = CASE t.act WHEN {act line} THEN t.gate END, place = NULL,
    seat = CASE WHEN t.act = {act claim} THEN (SELECT seats FROM allow)[(SELECT had FROM allow) + t.n] END,`) + `
    locked_by = CASE WHEN t.act = {act claim} THEN $3::text END,
    lease_expires_at = CASE WHEN t.act = {act claim} THEN (SELECT clock_timestamp()) + $6::bigint * interval '1 microsecond' END,
    claim_token = CASE WHEN t.act = {act claim} THEN {next token} ELSE g.claim_token END,
    updated_at = CASE WHEN t.act = {act claim} THEN statement_timestamp() ELSE g.updated_at END
  FROM todo t WHERE g.ctid = t.tid AND (t.act > {act claim} OR t.n <= ` + either(f.gated, `(SELECT want FROM allow))`, `$5)`) + either(f.plain, ``, ` AND (t.act <> {act blocked} OR $10::bool)`) + `
  RETURNING t.act, g.id, g.awaits IS NOT NULL AS awaits, g.fsm, g.fsm_version, ` + either(f.plain, `NULL AS unsettled, NULL::bigint AS fencing_token`,
		`CASE WHEN t.act = {act blocked} THEN g.partition_key END AS unsettled,
    CASE WHEN t.act = {act claim} AND g.partition_key IS NOT NULL THEN {next token} END AS fencing_token`) + `),
sum AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE act = {act claim}) AS claimed, count(*) FILTER (WHERE act > {act claim}) AS moved,
    array_agg(id) FILTER (WHERE act = {act claim}) AS ids, array_agg(id) FILTER (WHERE act = {act claim} AND awaits) AS awaiting,
    array_agg(ARRAY[id, fencing_token]) FILTER (WHERE fencing_token IS NOT NULL) AS fencing,
    array_agg(unsettled) FILTER (WHERE unsettled IS NOT NULL)` + when(f.narrowed(), `
      || ARRAY(SELECT p.k FROM probe p JOIN held h ON h.id = p.head WHERE h.pick_lane = {lane key})`) + ` AS unsettled FROM moved)
SELECT length(set_config('gendurable.claimed', ` + f.passed(`claimed`, `ids`) + `, false) ||
    set_config('gendurable.awaiting', ` + f.passed(`awaiting`, `awaiting`) + `, false) ||
    set_config('gendurable.fencing', ` + f.passed(`fencing`, `fencing`) + `, false) ||
    set_config('gendurable.unsettled', coalesce(sum.unsettled::text, '{}'), false)),
  sum.moved, ` + either(f.plain, `0`, `(SELECT count(*) FROM todo b WHERE b.act = {act blocked} AND NOT $10::bool)`) + `,
  ARRAY(SELECT DISTINCT m.fsm || '/' || m.fsm_version FROM moved m WHERE m.act = {act aside} LIMIT 50),
  CASE WHEN sum.claimed < $5 THEN (
    SELECT (extract(epoch FROM min(n.eligible_at) - (SELECT clock_timestamp())) * 1000000)::bigint
    FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN LATERAL (
      SELECT g.eligible_at FROM {s}.gen_durable g
      WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane front}
        AND g.priority = level.p AND g.eligible_at > statement_timestamp()
      ORDER BY g.eligible_at LIMIT 1) n) END, (date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
  sum.claimed, l.priority, l.eligible_at, l.id, EXISTS (SELECT FROM ` + either(f.plain, `seen WHERE partition_key IS NOT NULL`, `keyed`) + `)` + when(f.gated, `,
  (SELECT array_agg(e.gate) FROM todo e WHERE e.act = {act line})`) + `
FROM sum LEFT JOIN todo l ON l.act = {act claim} AND l.n = sum.claimed`
}

// plainText takes the place of the half of the statement that is about partition keys.
const plainText = `,
todo AS MATERIALIZED (
  SELECT tid, id, act, row_number() OVER (PARTITION BY act ORDER BY priority, eligible_at, id) AS n, priority, eligible_at FROM (
    SELECT w.*, CASE WHEN w.known THEN {act claim} ELSE {act aside} END AS act FROM seen w) s
  WHERE NOT EXISTS (SELECT FROM seen WHERE partition_key IS NOT NULL))`

// look are the parameters of a window, and how it locks its rows.
type look struct{ machines, priority, at, id, ids, lock string }

var claimLook = look{machines: "$4", priority: "$7", at: "$8", id: "$9", ids: "$11", lock: " FOR NO KEY UPDATE OF g SKIP LOCKED"}

// window begins the statement: it finds the rows at which the claim looks.
func (f claimForm) window(p look) string {
	return `WITH RECURSIVE ` + when(f.gated, `allow AS MATERIALIZED (`+allowText("$5")+`),
o AS MATERIALIZED (`+onlyText+`),
`) + levelText(p.priority, p.at, p.id) + `,
aside(f, v) AS (
  (SELECT g.fsm, g.fsm_version FROM {s}.gen_durable g
   WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane aside} ORDER BY g.fsm, g.fsm_version LIMIT 1)
  UNION ALL
  SELECT n.fsm, n.fsm_version FROM aside CROSS JOIN LATERAL (
    SELECT g.fsm, g.fsm_version FROM {s}.gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane aside}
      AND (g.fsm, g.fsm_version) > (aside.f, aside.v) ORDER BY g.fsm, g.fsm_version LIMIT 1) n),
` + either(f.late(), `near`, `seen`) + ` AS MATERIALIZED (SELECT * FROM (SELECT * FROM (
  SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0) level` + when(f.gated, ` CROSS JOIN o`) + ` CROSS JOIN LATERAL (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane,
      (g.fsm || '/' || g.fsm_version) = ANY(` + p.machines + `::text[]) AS known` + f.gate() + `
    FROM {s}.gen_durable g
    WHERE g.queue = $1 AND ` + f.runnable() + ` AND NOT g.paused AND g.pick_lane = {lane front}
      AND g.priority = level.p AND (g.eligible_at, g.id) >= (level.at, level.id) AND g.eligible_at <= statement_timestamp()
    ` + f.among(p.ids) + `ORDER BY g.eligible_at, g.id LIMIT 1000` + p.lock + `) r LIMIT 1000) z LIMIT $2) front
  UNION ALL
  SELECT r.* FROM aside` + when(f.gated, ` CROSS JOIN o`) + ` CROSS JOIN LATERAL (SELECT * FROM (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane, true AS known` + f.gate() + `
    FROM {s}.gen_durable g
    WHERE g.queue = $1 AND ` + f.runnable() + ` AND NOT g.paused AND g.pick_lane = {lane aside}
      AND g.fsm = aside.f AND g.fsm_version = aside.v AND g.eligible_at <= statement_timestamp()
    ` + f.among(p.ids) + `ORDER BY g.priority, g.eligible_at, g.id LIMIT 1000` + p.lock + `) q LIMIT $2) r
  WHERE (aside.f || '/' || aside.v) = ANY(` + p.machines + `::text[]))` + when(f.late(), `,
seen AS MATERIALIZED (
  SELECT * FROM near
  UNION ALL
  SELECT r.* FROM (
    SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0 AND $2 >= 1000) level CROSS JOIN o CROSS JOIN LATERAL (
      SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane,
        (g.fsm || '/' || g.fsm_version) = ANY(`+p.machines+`::text[]) AS known`+f.gate()+`
      FROM {s}.gen_durable g
      WHERE g.queue = $1 AND `+f.runnable()+` AND NOT g.paused AND g.pick_lane = {lane front}
        AND g.priority = level.p AND (g.eligible_at, g.id) >= (level.at, level.id) AND g.eligible_at <= statement_timestamp()
      ORDER BY g.eligible_at DESC, g.id DESC LIMIT 200`+p.lock+`) r LIMIT 200) r
  WHERE r.known AND r.gate IS NOT NULL AND r.partition_key IS NULL AND r.id <> ALL(ARRAY(SELECT n.id FROM near n)))`)
}

// levelText are the distinct priorities in front of queue $1, each with its first row behind a
// place.
func levelText(priority, at, id string) string {
	return `level(p, at, id) AS (
  SELECT -32769, '-infinity'::timestamptz, 0::bigint
  UNION ALL
  SELECT n.* FROM level CROSS JOIN LATERAL (
    SELECT * FROM (
      (SELECT g.priority::int AS p, g.eligible_at, g.id FROM {s}.gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane front} AND g.priority > level.p AND g.priority < ` + priority + `::int
       ORDER BY g.priority, g.eligible_at, g.id LIMIT 1)
      UNION ALL
      (SELECT g.priority::int, g.eligible_at, g.id FROM {s}.gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = {lane front} AND (g.priority, g.eligible_at, g.id) >
         (greatest(level.p, ` + priority + `::int), CASE WHEN level.p < ` + priority + `::int THEN ` + at + `::timestamptz ELSE 'infinity' END, ` + id + `::bigint)
       ORDER BY g.priority, g.eligible_at, g.id LIMIT 1)) c
    ORDER BY 1, 2, 3 LIMIT 1) n)`
}

// late reports whether the claim also looks at the last rows that are due.
func (f claimForm) late() bool { return f.gated && !f.narrowed() }

// narrowed reports whether the claim is among some of the due rows only.
func (f claimForm) narrowed() bool { return f.others || f.some }

// among selects rows by their ids.
func (f claimForm) among(ids string) string {
	return when(f.narrowed(), `AND g.id `+either(f.some, `= ANY(`, `<> ALL(`)+ids+`::bigint[]) `)
}

// runnable is the condition of the window's rows. If they are found by their ids, coalesce() hides
// the status from the partial indexes, of which one would lead to all due rows of the queue: only
// the primary key is left (T98).
func (f claimForm) runnable() string {
	return either(f.some, `coalesce(g.status = 'runnable', false)`, `g.status = 'runnable'`)
}

// gate is a column of the window: of row g, the gate at which it has to get in line first.
func (f claimForm) gate() string {
	return when(f.gated, `,
      `+onlyGateText+` AS gate`)
}

// passed is what a setting passes on to the statements behind the claim: what it had, if the claims
// from lines may have set it, and a column of sum.
func (f claimForm) passed(setting, column string) string {
	return either(f.gated, `(current_setting('gendurable.`+setting+`')::bigint[] || coalesce(sum.`+column+`, '{}'))::text`,
		`coalesce(sum.`+column+`::text, '{}')`)
}

// ClaimParams defines what to claim.
type ClaimParams struct {
	Queue    string
	Worker   string        // the worker's UUID
	Machines []string      // MachineID of each registered machine
	Limit    int           // most rows to claim; at least 1
	Window   int           // rows to look at; at least Limit, at most 1000
	Lease    time.Duration // from the moment of the claim
	After    Place         // look only behind this place in the order, the last one of a claim before, and at what is of a more urgent
	// priority; zero: from the front
	Awaited     int  // most bytes of the awaited signals of one instance, as for Complete; 0: as many as a claim brings
	MoveBlocked bool // also move blocked rows out of the front: for a claim that follows one with Blocked
	// Plain is for queues without partition keys. The claim does nothing if a row at which it looks
	// has a key, and reports Keyed: the caller claims again without Plain. It has no effect if there
	// are gates, or rows that are set apart.
	Plain bool
	// Patience is how long the claim waits for others of its queue to end: see claimTurnSQL. Zero: it
	// does not wait for them, nor they for it. It has no effect on a claim at gates.
	Patience time.Duration
	Gated    bool // there are gates, or rows are in line
	Seats    bool // the queue has a gate of its own
	Lines    Turn // where to go on through the lines
	Jumps    Jumps
	// Committed, if not nil, is told at most once what was claimed, before the rows are read. The next
	// claim of the queue may be sent from then on: it finds what this one has claimed executing. A
	// claim at gates, one that has to narrow down, and one that fails do not tell.
	Committed func(Sure)

	pass   []int64  // rows of lines to pass over
	only   []int64  // claim from the lines, among these rows; nil: from the front, too
	off    bool     // claim from the front only
	unpaid []string // keys to pass over: see claimPaid
}

// Place in the order of a queue.
type Place struct {
	Priority   int16
	EligibleAt time.Time
	ID         int64
}

// Compare is the order of a queue; the zero place is before all others.
func (p Place) Compare(o Place) int {
	if p == (Place{}) || o == (Place{}) {
		return cmp.Compare(p.ID, o.ID) // ids begin with 1
	}
	return cmp.Or(cmp.Compare(p.Priority, o.Priority), p.EligibleAt.Compare(o.EligibleAt), cmp.Compare(p.ID, o.ID))
}

func (p Place) args() []any {
	if p == (Place{}) {
		return []any{int16(math.MinInt16), pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, int64(0)}
	}
	return []any{p.Priority, p.EligibleAt, p.ID}
}

// Claimed is the result of one claim.
type Claimed struct {
	Claims  []*step.Claim // most urgent first
	Moved   int           // rows whose lane changed: a claim that moved some and brought few is worth repeating at once
	Aside   []string      // MachineIDs that were set aside because this worker does not know them; some, if there are many
	NextDue time.Duration // until the queue's next row behind After becomes eligible; negative: none is waiting, or the claim was full
	Last    Place         // the place of the least urgent claim from the front; zero: there is none
	Took    time.Duration // the time that the server took
	Blocked int           // rows left in front whose key's head, or executing row, somebody has locked
	Keyed   bool          // a row at which it looked has a partition key: see ClaimParams.Plain
	// Refused are rows that Postgres refuses to change, and that claims pass over for a while, and
	// rows that were claimed and are left to their leases, since nothing of them can be read.
	Refused []Refused
	// Unsettled are the keys of blocked rows that were moved, which the caller has to Promote. If the
	// answer is lost, the sweep of the keys finds them.
	Unsettled []string

	// Of a claim at gates:
	Busy    bool          // another claim had a gate locked: claim again soon
	Ahead   bool          // the server's clock was set back: see turnBackSQL
	More    bool          // there are more rows in line that may begin
	Cut     bool          // the claim has not visited all lines
	Crowded bool          // all places of some gate are taken at which rows are in line
	Yielded bool          // the claim has left a place at a gate to another queue
	Rivals  bool          // another queue is in line at a gate at which this one has found no place
	Left    int           // rows that have left their line for the front, or to be set aside
	Turn    Turn          // where the next claim goes on
	Entered []string      // gates at which it has put rows in line
	Vain    []BlockedKey  // keys that it has visited in vain, if it was to jump over runs
	Arrived Arrived       // rows that are new in line
	Lined   []*step.Claim // those of Claims that were in line

	turned turned
	placed []placed // Claims with their places
	sure   Sure
}

// Sure has the facts about a claim that are known as soon as it has been committed, while its rows
// are still being read.
type Sure struct {
	Rows int           // how many were claimed
	Last Place         // as Claimed.Last
	Took time.Duration // as Claimed.Took
	More bool          // the claim has done nothing but claim: it has moved no row, and met none that is blocked
}

// placed is a claim with its place in the order.
type placed struct {
	place Place
	claim *step.Claim
	lined bool // it was in line at a gate
}

// take adds claims, and puts all of them in order.
func (c *Claimed) take(more []placed) {
	c.placed = append(c.placed, more...)
	sort.Slice(c.placed, func(i, j int) bool { return c.placed[i].place.Compare(c.placed[j].place) < 0 })
	c.Claims, c.Lined = make([]*step.Claim, len(c.placed)), nil
	for i, p := range c.placed {
		if c.Claims[i] = p.claim; p.lined {
			c.Lined = append(c.Lined, p.claim)
		} else {
			c.Last = p.place
		}
	}
}

// MachineID returns the name by which claims identify a machine and its version.
func MachineID(name string, version int) string { return fmt.Sprintf("%s/%d", name, version) }

// Claim claims runnable rows of one queue and reads them, in one round trip whose cost does not
// depend on the number of rows in the table (§6). The claim commits before any data of the rows is
// sent: see look. A unique violation (IsUniqueViolation) means that two picks collided on a
// partition key: claim again, fewer rows. After an error that is Unknown, rows may be claimed
// nevertheless: see Held.
//
// A row that Postgres refuses to change keeps it from claiming no other row: see claimApart. Nor
// does a row that cannot be read: see readApart.
func (s *Store) Claim(ctx context.Context, p ClaimParams) (out Claimed, err error) {
	apart := s.apart.claim.queue(p.Queue)
	err = s.onConnection(ctx, func(conn *pgx.Conn) error {
		pass := apart.ids()
		p.pass, p.Plain = pass, p.Plain && !p.Gated && len(pass) == 0
		pick := func(out *Claimed) entpgx.Stmt { return s.stmt(claimSQL, out.readPick, p.args()...) }
		switch {
		case len(pass) > 0 && p.Gated:
			pick = func(out *Claimed) entpgx.Stmt {
				return s.stmt(gatedOthersSQL, out.readPick, append(p.args(), pass)...)
			}
		case len(pass) > 0:
			pick = func(out *Claimed) entpgx.Stmt {
				return s.stmt(claimOthersSQL, out.readPick, append(p.args(), pass)...)
			}
		case p.Gated:
			pick = func(out *Claimed) entpgx.Stmt { return s.stmt(gatedSQL, out.readPick, p.args()...) }
		case p.Plain:
			pick = func(out *Claimed) entpgx.Stmt { return s.stmt(plainSQL, out.readPick, p.plainArgs()...) }
		}
		claim := func(ctx context.Context, conn *pgx.Conn) (Claimed, error) { return s.claimOnce(ctx, conn, &p, pick) }
		if p.Gated {
			claim = func(ctx context.Context, conn *pgx.Conn) (Claimed, error) { return s.claimPaid(ctx, conn, &p, pick) }
		}
		out, err = claim(ctx, conn)
		if !blames(err) || collided(err) || unknown(err) {
			return err
		}
		out, err = s.claimApart(ctx, conn, &p, pass)
		apart.add(out.Refused)
		return err
	})
	if err != nil {
		return Claimed{}, fmt.Errorf("claim queue %q: %w", p.Queue, err)
	}
	return out, nil
}

// claimOnce sends the two transactions of one claim, with a statement that claims, and others
// before it.
func (s *Store) claimOnce(ctx context.Context, conn *pgx.Conn, p *ClaimParams, pick func(*Claimed) entpgx.Stmt, before ...entpgx.Stmt) (
	Claimed, error,
) {
	out := Claimed{NextDue: -1}
	front, body := pick(&out), before
	if p.Gated {
		body = append(body, s.atGates(p, &out, front)...)
	} else {
		if p.Patience > 0 {
			body = append(body, s.stmt(claimTurnSQL, nil, s.schema, p.Queue, micros(p.Patience)))
		}
		body = append(body, front)
	}
	claim := s.enclose(fastLock, body)
	err := s.pipelineOn(ctx, conn, append(claim, s.look(p, &out)...)...)
	if out.Turn = p.Lines; p.Gated {
		out.Turn = p.Lines.next(p.Limit, &out.turned, out.sure.Rows)
	}
	if failed, ok := errors.AsType[*entpgx.StmtError](err); ok && failed.Sent && failed.Index >= len(claim) {
		if blames(err) {
			alone := *p
			alone.Committed = nil
			err = s.readApart(ctx, conn, &alone, &out)
		}
		if err != nil {
			err = committedError{err}
		}
	}
	return out, err
}

// args returns the arguments of claimSQL.
func (p *ClaimParams) args() []any {
	args := append([]any{p.Queue, p.Window, p.Worker, p.Machines, p.Limit, micros(p.Lease)}, p.After.args()...)
	return append(args, p.MoveBlocked)
}

// plainArgs returns the arguments of plainSQL.
func (p *ClaimParams) plainArgs() []any {
	args := p.args()
	return args[:len(args)-1]
}

// readPick reads the one row of claimSQL.
func (c *Claimed) readPick(rows pgx.Rows) error {
	var due *int64
	var spent int64
	var moved, claimed int
	var priority *int16
	var at *time.Time
	var id *int64
	var keyed bool
	var entered []string
	into := []any{nil, &moved, &c.Blocked, &c.Aside, &due, &spent, &claimed, &priority, &at, &id, &keyed}
	if len(rows.FieldDescriptions()) > len(into) { // at gates
		into = append(into, &entered)
	}
	_, err := pgx.ForEachRow(rows, into, func() error {
		c.Entered = append(c.Entered, entered...)
		c.Moved, c.Keyed = c.Moved+moved, c.Keyed || keyed
		if c.sure.Rows = claimed; id != nil {
			c.sure.Last = Place{*priority, *at, *id}
		}
		c.soon(due)
		c.Took += duration(spent)
		return nil
	})
	return err
}

// committed returns what is known of the claim once the answer of its COMMIT is there.
func (c *Claimed) committed() Sure {
	sure := c.sure
	sure.Took, sure.More = c.Took, c.Moved == 0 && c.Blocked == 0
	return sure
}

// committedError is an error after a COMMIT that took effect, whatever error the statements after
// it had.
type committedError struct{ error }

func (e committedError) Unwrap() error { return e.error }

// Unknown returns true: something took effect, and the caller does not know what.
func (committedError) Unknown() bool { return true }
