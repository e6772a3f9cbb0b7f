package store

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

const (
	// claimBytes bounds how many bytes one claim brings of its rows' states, of their dropped children
	// and of their awaited signals, each. Every row has an equal share. Complete reads what exceeds
	// the share when the flight starts.
	claimBytes = 4 << 20
	// awaitedMost bounds the awaited signals that a claim brings of one instance.
	awaitedMost = 100
	// toldLeast is how many rows a claim has to want for Committed to be told. The server sends the
	// answers of a smaller one together with its rows.
	toldLeast = 100
)

// look returns the transaction that reads the claimed rows, after the claim's COMMIT. So the server
// sends nothing large while it holds the claim's locks. If a client stops reading in the middle of
// an answer, since it is frozen, out of memory or cut off, the server process waits in a write,
// which neither statement_timeout nor idle_in_transaction_session_timeout ends. Inside the claim's
// transaction it would keep the rows locked for as long. And if the claim rolled back, it would not
// count as a crash of a process that dies of the data it receives. After the COMMIT the rows are
// the worker's, by their lease.
//
// The claim passes its results on by settings of the session: the ids of its rows, the ids of those
// with awaits, {id, fencing token} of those with keys, and the keys of blocked rows that it moved.
//
// before are statements that come before those that read.
func (s *Store) look(p *ClaimParams, out *Claimed, before ...entpgx.Stmt) []entpgx.Stmt {
	var fencing, lined []int64
	most := claimBytes / max(1, p.Limit)
	awaited := most
	if p.Awaited > 0 {
		awaited = min(most, p.Awaited)
	}
	read := func(into ...any) func(pgx.Rows) error {
		return func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, into, func() error { return nil })
			return err
		}
	}
	settings := s.stmt(claimSettingsSQL, read(nil, &fencing, &out.Unsettled, nil), statementLimit)
	if p.Gated {
		settings = s.stmt(gatedSettingsSQL, read(nil, &fencing, &out.Unsettled, &lined, nil), statementLimit)
	}
	if p.Committed != nil && !p.Gated && p.Limit >= toldLeast {
		read := settings.Read
		settings.Read = func(rows pgx.Rows) error {
			err := read(rows)
			if err == nil && (!p.Plain || !out.Keyed) {
				p.Committed(out.committed())
			}
			return err
		}
	}
	stmts := append(make([]entpgx.Stmt, 0, 6), s.stmt(beginSQL, nil), settings)
	return append(append(stmts, before...),
		s.stmt(takenSQL, func(rows pgx.Rows) error { return out.readTaken(rows, p.Queue, fencing, lined) }, p.Worker, most),
		s.stmt(inboxSQL, func(rows pgx.Rows) error { return readAwaited(rows, out.Claims, awaited) }, awaited, awaitedMost+1),
		s.stmt(endSQL, nil))
}

var (
	claimSettingsSQL = named("claim settings", claimSettingsText(false))
	gatedSettingsSQL = named("gated settings", claimSettingsText(true))
)

// claimSettingsText is to the two statements that read claims what settingsSQL is to others, and
// returns what of the claim is not in its rows. Behind a claim at gates it also returns
// the ids of the rows that were claimed from lines. $1 statement_timeout
func claimSettingsText(gated bool) string {
	return `SELECT set_config('statement_timeout', $1, true) || set_config('enable_seqscan', 'off', true) ||
    set_config('enable_bitmapscan', 'off', true) || set_config('plan_cache_mode', 'force_generic_plan', true) ||
    set_config('jit', 'off', true) || set_config('datestyle', 'ISO', true) IS NULL,
  ARRAY(SELECT unnest(current_setting('gendurable.fencing')::bigint[])), current_setting('gendurable.unsettled')::text[],` + when(gated, ` current_setting('gendurable.lined')::bigint[],`) + `
  {untimed}`
}

// takenSQL reads the claimed rows. One that has changed hands since the claim (an operator has
// cancelled it) is left out. One that has even come back to this worker, by another claim, comes
// with that claim's token in both answers: the flight that begins later voids the other.
//
// The statement looks at the stored size of a state first, which does not fetch a value stored
// apart from its row; then at the size of its text, which is larger if it is stored compressed. $1
// worker $2 most bytes of a state, or of the list of dropped children: NULL stands for larger
// values.
//
// The last column but one is whether a claim of the partition key that another worker lost is
// noted: see key_lost.go. It cannot miss one. The claimed row has its entry in the unique index of
// executing keys, so whatever executed the key before has left that index by an earlier commit,
// which also noted its claim if it was taken away; and this statement's snapshot is later than the
// claim's commit. (The claim's own snapshot would not do. It may be older than another claim of the
// key that came, and was cancelled, while this one was held up on its way to the index.)
var takenSQL = named("claim read", `SELECT g.id, g.uid, g.fsm, g.fsm_version, g.step, CASE WHEN octet_length(g.state) <= $2::int THEN g.state END, g.attempt,
  g.crashes, g.visit, g.claim_token, g.priority, g.correlation_key, g.partition_key, g.parent_id, g.parent_round, g.depth, g.round, g.timed_out,
  g.inserted_at, CASE WHEN octet_length(g.dropped) <= $2::int THEN g.dropped END, g.has_dropped, g.deadline,
  (date_part('epoch', g.deadline - clock_timestamp()) * 1000000)::bigint, g.labels, g.trace, g.eligible_at,
  g.partition_key IS NOT NULL AND EXISTS (SELECT FROM {s}.lost_claims l WHERE l.partition_key = g.partition_key AND l.worker <> $1),
  CASE WHEN g.place IS NOT NULL THEN g.gate END, coalesce(g.retain[1] = 0, false), g.join_round, g.node
FROM (
  SELECT x.id, x.uid, x.fsm, x.fsm_version, x.step, CASE WHEN pg_column_size(x.state) <= $2::int THEN x.state::text END AS state, x.attempt,
    x.crashes, x.visit, x.claim_token, x.priority, x.correlation_key, x.partition_key, x.parent_id, x.parent_round, x.depth, x.round,
    x.timed_out, x.inserted_at, (x.round = x.visit OR x.join_round = x.visit) AND x.dropped IS NOT NULL AS has_dropped,
    CASE WHEN (x.round = x.visit OR x.join_round = x.visit) AND pg_column_size(x.dropped) <= $2::int THEN x.dropped::text END AS dropped, x.deadline, x.labels, x.trace,
    x.eligible_at, x.status, x.locked_by, x.gate, x.place, x.retain, coalesce(x.join_round, 0) AS join_round, x.node
  FROM {s}.gen_durable x WHERE x.id = ANY((SELECT current_setting('gendurable.claimed')::bigint[])::bigint[]) OFFSET 0) g
WHERE g.status = 'executing' AND g.locked_by = $1`)

// inboxSQL reads the awaited signals of the claimed rows. It is later than the claim, since a
// statement that waited for a row would pair it with the inbox of before (T7). If the awaited
// signals of an instance together exceed its share, the first one over it comes without its
// payload, as a mark. $1 most bytes $2 most signals of one instance
var inboxSQL = named("claim inbox", `SELECT g.id, q.id, q.name, CASE WHEN q.through <= $1::int THEN q.payload END, coalesce(q.dedup_key, ''), q.inserted_at, q.trace
FROM {s}.gen_durable g CROSS JOIN LATERAL (
  SELECT p.*, sum(p.size) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS through FROM (
    SELECT m.*, 100 + coalesce(pg_column_size(m.trace), 0) + CASE WHEN pg_column_compression(m.payload) IS NULL OR pg_column_size(m.payload) > $1::int
      THEN pg_column_size(m.payload) ELSE octet_length(m.payload::text) END AS size
    FROM (SELECT * FROM (SELECT n.id, n.name, n.payload, n.dedup_key, n.inserted_at, n.trace FROM {s}.signals n
      WHERE n.target_id = g.id AND n.name = ANY(g.awaits) AND n.consumed_at IS NULL OFFSET 0) i ORDER BY i.id LIMIT $2) m) p) q
WHERE g.id = ANY((SELECT current_setting('gendurable.awaiting')::bigint[])::bigint[]) AND q.through - q.size <= $1::int
ORDER BY g.id, q.id`)

// readTaken reads the rows of takenSQL. fencing has the {id, fencing token} of rows with keys, and
// lined the ids of those that were in line at gates.
func (out *Claimed) readTaken(rows pgx.Rows, queue string, fencing, lined []int64) error {
	waited := map[int64]bool{}
	for _, id := range lined {
		waited[id] = true
	}
	tokens := tokensOf(fencing)
	var (
		c              step.Claim // as the variables below: of the row that is being read
		state          []byte
		key, partition *string
		gate, node     *string
		parent         *int64
		deadline       *time.Time
		life           *int64
		dropped        []byte
		lost           *bool
		labels, trace  []byte
		at             time.Time
	)
	// All rows are scanned into the same variables: pgx makes new bytes for each.
	into := []any{&c.ID, &c.UID, &c.Machine, &c.Version, &c.Step, &state, &c.Attempt, &c.Crashes, &c.Visit, &c.Token,
		&c.Priority, &key, &partition, &parent, &c.ParentRound, &c.Depth, &c.Round, &c.TimedOut, &c.InsertedAt, &dropped, &lost,
		&deadline, &life, &labels, &trace, &at, &c.Lingers, &gate, &c.Fleeting, &c.JoinsAt, &node}
	var found []placed
	for rows.Next() {
		c = step.Claim{Queue: queue}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		c.State, c.FencingToken = state, cmp.Or(tokens[c.ID], c.Token)
		if c.FencingToken < c.Token { // it came back to this worker, by a claim that has its own answer
			continue
		}
		c.Gate, c.Node = value(gate), value(node)
		c.CorrelationKey, c.PartitionKey, c.Parent, c.Deadline = value(key), value(partition), value(parent), value(deadline)
		c.Dropped = own[[]step.Dropped](dropped)
		c.Partial = state == nil || dropped == nil && value(lost)
		if life != nil {
			c.Life = duration(*life)
		}
		c.Labels, c.Trace = step.Texts(labels), step.Texts(trace)
		claim := c
		found = append(found, placed{Place{int16(c.Priority), at, c.ID}, &claim, waited[c.ID]}) //nolint:gosec // a smallint
	}
	out.take(found)
	return rows.Err()
}

// tokensOf returns the fencing tokens of claims with keys, by id.
func tokensOf(pairs []int64) map[int64]int64 {
	tokens := make(map[int64]int64, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		tokens[pairs[i]] = pairs[i+1]
	}
	return tokens
}

// own decodes JSON that the engine wrote. If foreign SQL has written something else there, own
// ignores it: an error would lose the other claims of a batch.
func own[T any](text []byte) (v T) {
	if len(text) > 0 && json.Unmarshal(text, &v) != nil {
		var none T
		return none
	}
	return v
}

// readAwaited reads the rows of inboxSQL. most bytes of signals are what an instance is given.
func readAwaited(rows pgx.Rows, claims []*step.Claim, most int) error {
	type given struct {
		claim *step.Claim
		size  int
	}
	var byID map[int64]*given // most claims bring no signals
	for rows.Next() {
		var target int64
		m, err := scanSignal(rows, &target)
		if err != nil {
			return err
		}
		if byID == nil {
			byID = make(map[int64]*given, len(claims))
			for _, c := range claims {
				byID[c.ID] = &given{claim: c}
			}
		}
		to := byID[target]
		if to == nil {
			continue
		}
		to.size += signalSize(&m)
		if m.Payload == nil || to.size > most || len(to.claim.Awaited) == awaitedMost {
			to.claim.Partial = true
			continue
		}
		to.claim.Awaited = append(to.claim.Awaited, m)
	}
	return rows.Err()
}

// scanSignal reads the columns target_id, id, name, payload, dedup_key, inserted_at and trace, and
// the columns after them into behind.
func scanSignal(rows pgx.Rows, target *int64, behind ...any) (step.Signal, error) {
	var g step.Signal
	var payload, trace []byte
	err := rows.Scan(append([]any{target, &g.ID, &g.Name, &payload, &g.DedupKey, &g.At, &trace}, behind...)...)
	g.Payload, g.Trace = payload, trace
	return g, err
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
