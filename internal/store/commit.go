package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// Entry is one outcome to commit in a batch.
type Entry struct {
	Claim  *step.Claim
	Commit *step.Commit
	Keep   bool // of Next only: the claim is kept, and the row stays executing
	// Drop deletes the row with its Done. A child stays for its parent, and a parent stays for its
	// children: the GC deletes these.
	Drop bool
	// Record makes the history keep the transition. Nil: it is not recorded.
	Record *Record
}

// Alone reports whether the entry must not share a batch. The insertion of a child with a
// correlation key waits for another insert of the same key. The insertion of a graph, or of nodes
// that are added to one, takes several round trips.
func (e *Entry) Alone() bool { return e.Commit.Graph != nil || e.Commit.Add != nil || e.Keyed() }

// Keyed reports whether a child has a correlation key.
func (e *Entry) Keyed() bool {
	for i := range e.Commit.Spawn {
		if e.Commit.Spawn[i].Key != "" {
			return true
		}
	}
	return false
}

// Bytes estimates how many bytes of an entry travel to Postgres.
func (e *Entry) Bytes() int {
	o := e.Commit
	n := len(o.Step) + len(o.State) + len(o.Result) + len(o.Err) + 8*len(e.Claim.Awaited)
	for _, name := range o.Names {
		n += len(name)
	}
	if u := o.Unless; u != nil {
		n += len(u.Step) + len(u.State)
		for _, name := range u.Names {
			n += len(name)
		}
	}
	if o.Join != nil {
		for _, name := range o.Join.Names {
			n += len(name)
		}
	}
	for i := range o.Spawn {
		n += spawnBytes(&o.Spawn[i])
	}
	n += o.Graph.Bytes() + o.Add.Bytes()
	if e.Record != nil {
		n += len(e.Record.Diff)
	}
	return n
}

// spawnBytes estimates how many bytes of a child travel to Postgres: its texts, its uid and its
// numbers.
func spawnBytes(x *step.Spec) int { return x.Bytes() + 150 }

// lockText locks the row of t, the outcome, and is its ctid; NULL if another transaction has it
// locked. It stands in the select list, with a LIMIT: as a join it cost 4,000 instructions more
// for each row, one in thirty. Each row is locked once, since OFFSET 0 keeps the subselect around
// it in one piece.
const lockText = `(SELECT x.ctid FROM {s}.gen_durable x WHERE x.id = t.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)`

// goneText is the condition that an instance has been deleted, by hand: the GC deletes a parent
// after its children, which have no foreign key to it. It is asked only of a parent that could not
// be locked, so it costs others nothing. A transaction that is about to delete the parent has it
// locked, and it still exists: then its child is left out. An id never comes back.
func goneText(id string) string {
	return `(SELECT gone.id FROM {s}.gen_durable gone WHERE gone.id = ` + id + `) IS NULL`
}

// commitForm is a form of the statement that applies all other outcomes. What a batch does not need
// costs it nothing.
type commitForm struct {
	recorded bool // it also appends to the history
	rare     bool // it writes the versions of outcomes of converted claims, and leaves nodes unbegun
	nodes    bool // it ends nodes of graphs; then it is also rare
}

var (
	keptSQL                = named("commit kept", keptText(false))
	keptRecordedSQL        = named("commit kept", keptText(true), "recorded")
	doneSQL                = named("commit done", doneText(false))
	doneRecordedSQL        = named("commit done", doneText(true), "recorded")
	commitSQL              = named("commit", commitForm{}.text())
	commitRecordedSQL      = named("commit", commitForm{recorded: true}.text(), "recorded")
	migratedSQL            = named("commit migrated", commitForm{rare: true}.text())
	migratedRecordedSQL    = named("commit migrated", commitForm{rare: true, recorded: true}.text(), "recorded")
	commitNodesSQL         = named("commit nodes", commitForm{nodes: true, rare: true}.text())
	commitNodesRecordedSQL = named("commit nodes", commitForm{nodes: true, rare: true, recorded: true}.text(), "recorded")
)

// keptText commits the outcomes of a batch that keep their claim. It changes no indexed column, so
// Postgres updates the row in place (HOT) at half the cost. That is why the heartbeat, and not the
// commit, extends leases. See commitForm for the statement's shape.
//
// $1 ids $2 tokens $3 visits $4 worker $5 mark $6 steps $7 states, and the history's
func keptText(recorded bool) string {
	h := unrecorded
	if p := parameters(7); recorded {
		h = recordedAs(&p, "'next'", "g.step", "NULL::text", "NULL::text")
	}
	return when(recorded, `WITH h AS (`) + `UPDATE {s}.gen_durable g SET step = u.step, state = u.state::jsonb, awaits = NULL, timed_out = false, attempt = 0, crashes = 0,
  last_error = NULL, visit = g.visit + 1, commit_id = $5::uuid, updated_at = (SELECT clock_timestamp())
FROM (SELECT t.*` + h.lock + `
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS step,
    unnest($7::text[]) AS state` + h.arrays + `) t` + h.from + `
WHERE g.ctid = ` + h.tid + ` AND ` + visitFence("u.token", "u.visit") + `
RETURNING g.id` + h.end
}

// doneText commits the Done outcomes of a batch, except the outcomes of children, whose parents
// must be locked. Done is the most common outcome that gives its claim up, and a statement for this
// one kind costs nine tenths of the general one. See commitForm for the statement's shape.
//
// $1 ids $2 tokens $3 visits $4 worker $5 mark $6 results, and the history's
func doneText(recorded bool) string {
	h := unrecorded
	if p := parameters(6); recorded {
		h = recordedAs(&p, "'done'", "NULL::text", "NULL::text", "NULL::text")
	}
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)` + h.open + `UPDATE {s}.gen_durable g SET status = 'done', result = u.result::jsonb, awaits = NULL, timed_out = false, await_deadline = NULL, pick_lane = {lane front},
  last_error = NULL, failure = NULL, locked_by = NULL, lease_expires_at = NULL, gate = NULL, place = NULL, seat = NULL,
  finished_at = (SELECT now FROM c), commit_id = $5::uuid, updated_at = (SELECT now FROM c)
FROM (SELECT t.*` + h.lock + `
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS result` + h.arrays + `) t` + h.from + `
WHERE g.ctid = ` + h.tid + ` AND ` + visitFence("u.token", "u.visit") + `
RETURNING g.id` + h.end
}

// text applies all other outcomes of a batch, of all kinds, under the fence (see visitFence). A
// stale outcome changes nothing. Each applied row carries the batch's mark in commit_id. The riders
// that follow in the transaction find their rows by that mark, and never by the values that the
// fence should have next, which a re-claimed row could match too (T84).
//
// The statement never waits for a foreign lock. It leaves out a locked row (SKIP LOCKED), and a
// terminal child whose parent, which a rider is to join, is locked. Lock and UPDATE are one
// statement: a separate UPDATE could not know which rows the lock skipped, and would wait for
// them. The parents are locked before the first row is, whether that row is a child or not, since
// the condition of the subselect evaluates the subquery of the parents first. A parent whose own
// outcome is in this batch could no longer be locked after its update, and its child would be left
// out. The join is by ctid, which is right only because the lock did not wait (T99).
//
// Of a batch that ends nodes, it leaves out a node for which a locked row waits. All of these rows
// are locked before the first row is updated, as the parents are.
//
// $1 ids, ascending $2 tokens $3 visits $4 worker $5 mark $6 kinds $7 steps $8 states $9 results
// $10 delay or timeout, µs $11 time $12 errors $13 failures $14, $15 slice of $16 names $17 number
// of children $18 parent of a terminal child $19 the distinct parents, and behind these what the
// form has: the columns of the history, the versions, which nodes stay unbegun, the nodes. A column
// that no entry needs is NULL, which unnest pads.
//
// A node that gives way before its step is called stays one that has not begun: it bears no mark.
// So no rider finds it, and after a COMMIT without an answer it looks stale: nothing has run, so
// its worker does not mind.
func (f commitForm) text() string {
	p, h := parameters(19), unrecorded
	if f.recorded {
		h = recordedAs(&p, "u.kind", "CASE WHEN u.kind IN ('next', 'await', 'children', 'rejoin') THEN g.step END", "u.failure", "u.err")
	}
	versions, unbegun, nodes := p.next(), p.next(), p.next()
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
p AS MATERIALIZED (SELECT x.id FROM {s}.gen_durable x WHERE x.id = ANY($19::bigint[]) FOR NO KEY UPDATE SKIP LOCKED)` +
		when(f.nodes, `,
held AS MATERIALIZED (`+heldText(nodes+"::bigint[]")+`)`) + h.open + `UPDATE {s}.gen_durable g SET
  status = CASE u.kind WHEN 'await' THEN 'awaiting_signal' WHEN 'done' THEN 'done' WHEN 'fail' THEN 'failed'
    WHEN 'children' THEN CASE WHEN u.n > 0 THEN 'awaiting_children'::{s}.durable_status ELSE 'runnable' END
    WHEN 'rejoin' THEN 'awaiting_children' ELSE 'runnable' END,
  step = coalesce(u.step, g.step),` + when(f.rare, ` fsm_version = coalesce(u.version, g.fsm_version),`) + `
  state = coalesce(u.state::jsonb, g.state),
  result = CASE u.kind WHEN 'done' THEN u.result::jsonb ELSE g.result END,
  awaits = CASE WHEN u.kind IN ('retry', 'again', 'fail') THEN g.awaits WHEN u.kind = 'await' THEN ($16::text[])[u.lo:u.hi] END,
  timed_out = CASE WHEN u.kind IN ('retry', 'again', 'fail') THEN g.timed_out ELSE false END,
  await_deadline = CASE u.kind WHEN 'await' THEN u.due END,
  eligible_at = CASE WHEN u.kind IN ('next', 'retry', 'again') OR u.kind = 'children' AND u.n = 0 THEN greatest(u.due, u.now)
    ELSE g.eligible_at END,
  pick_lane = {lane front},
  attempt = CASE WHEN u.kind = 'retry' THEN least(g.attempt, 2147483646) + 1 WHEN u.kind IN ('again', 'done', 'fail') THEN g.attempt ELSE 0 END,
  crashes = CASE WHEN u.kind IN ('retry', 'again', 'done', 'fail') THEN g.crashes ELSE 0 END,
  last_error = CASE WHEN u.kind IN ('retry', 'again', 'fail') THEN coalesce(u.err, g.last_error) END,
  failure = u.failure,
  errors = CASE WHEN u.kind = 'fail' OR u.kind = 'retry' AND u.err IS NOT NULL THEN ` + remembered + `'at', u.now,
    'kind', CASE WHEN u.kind = 'retry' THEN 'retry' WHEN u.failure = 'crashes' THEN 'crash' WHEN u.failure = 'deadline' THEN 'deadline'
      ELSE 'fail' END,
    'error', left(coalesce(u.err, ''), 1024)) ELSE g.errors END,
  locked_by = NULL,
  lease_expires_at = NULL,
  gate = NULL,
  place = NULL,
  seat = NULL,
  visit = g.visit + CASE WHEN u.kind IN ('next', 'await', 'children', 'rejoin') THEN 1 ELSE 0 END,
  round = CASE u.kind WHEN 'children' THEN g.visit + 1 ELSE g.round END,
  children_pending = CASE u.kind WHEN 'children' THEN u.n ELSE g.children_pending END,
  dropped = CASE u.kind WHEN 'children' THEN NULL ELSE g.dropped END,
  finished_at = CASE WHEN u.kind IN ('done', 'fail') THEN u.now END,
  joined = CASE WHEN u.kind IN ('done', 'fail') AND g.parent_id IS NOT NULL AND g.joined IS NULL THEN $5::uuid ELSE g.joined END,
  commit_id = ` + either(f.rare, `CASE WHEN u.unbegun AND g.commit_id IS NULL THEN NULL ELSE $5::uuid END`, `$5::uuid`) + `,
  updated_at = u.now
FROM (
  SELECT t.*, (SELECT now FROM c) AS now,
    CASE WHEN t.at IS NOT NULL THEN t.at WHEN t.us IS NOT NULL THEN (SELECT now FROM c) + t.us * interval '1 microsecond' END AS due` + h.lock + `
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS kind,
    unnest($7::text[]) AS step, unnest($8::text[]) AS state, unnest($9::text[]) AS result, unnest($10::bigint[]) AS us,
    unnest($11::timestamptz[]) AS at, unnest($12::text[]) AS err, unnest($13::text[]) AS failure, unnest($14::int[]) AS lo,
    unnest($15::int[]) AS hi, unnest($17::int[]) AS n, unnest($18::bigint[]) AS parent` +
		when(f.rare, `, unnest(`+versions+`::int[]) AS version, unnest(`+unbegun+`::boolean[]) AS unbegun`) + h.arrays + `) t
  WHERE ` + when(f.nodes, `(`) + `t.parent = ANY(ARRAY(SELECT id FROM p)) OR t.parent IS NULL OR ` + goneText("t.parent") +
		when(f.nodes, `) AND t.id <> ALL(ARRAY(SELECT id FROM held))`) + h.from + `
WHERE g.ctid = ` + h.tid + ` AND ` + visitFence("u.token", "u.visit") + `
RETURNING g.id` + h.end
}

// slowSQL leads a transaction of the slow lane. It locks the outcomes' own rows together with the
// parents to join, in id order, and waits for their holders up to the lock timeout. All waiters
// lock in this one order, so they cannot deadlock (T43). $1 ids
var slowSQL = named("commit slow", slowText)

const slowText = `SELECT x.id FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[]) ORDER BY x.id FOR NO KEY UPDATE`

// Committed reports what a batch did.
type Committed struct {
	Applied map[int64]bool           // by instance id; an id is missing if its outcome was stale or left out since someone held a row: ask Resolve
	Queues  []string                 // queues in which a row became runnable, worth a nudge; with repeats
	Soon    map[string]time.Duration // by queue, how soon the next row becomes due
	Missed  []string                 // partition keys to promote again soon
	Rest    bool                     // it has woken a parent whose join cancels the rest, or may have ended the root of a graph: worth a CancelRest
	Skips   bool                     // it has left nodes to be skipped: worth a Skip
	Turned  map[int64]bool           // instances of applied outcomes that did not end, since a signal waited: see step.Unless
	Unread  []Unread                 // signals that nobody has consumed, deleted with the inboxes of instances that are done
}

// Unread is a number of unconsumed signals of one name that were deleted with an inbox.
type Unread struct {
	Instance int64
	Name     string
	Number   int
}

// Commit applies a batch of outcomes as one transaction, each whole or not at all, each under its
// own fence (§8). It takes one round trip, and more if children have correlation keys or many
// bytes. No instance may occur twice, not even under different claims, since the riders go by the
// mark of the batch. mark must be new for each call.
//
// If wait is zero, Commit leaves out an outcome whose row, or the row of the parent that it joins,
// is locked. Otherwise it waits for both, at most wait for each. Such waits leave one connection
// to the other statements: if the pool has no second one to spare, Commit does not wait. Outcomes
// whose children have correlation keys go alone. They wait for another insert of the same key, for
// at most briefLock if wait is zero. So do outcomes that add to a graph, for all that they lock.
//
// After an error the batch is not applied, unless Unknown reports that this is open.
func (s *Store) Commit(ctx context.Context, worker, mark string, entries []Entry, wait time.Duration) (Committed, error) {
	if wait > 0 {
		select {
		case s.own <- struct{}{}:
			defer func() { <-s.own }()
		default:
			wait = 0
		}
	}
	b := newBatch(worker, mark, entries, wait > 0)
	lock := fastLock
	switch {
	case wait > 0:
		lock = millis(wait)
	case len(b.kids) > 0 || b.growth != nil:
		lock = briefLock
	}
	out, err := s.commitBatch(ctx, b, lock)
	if len(entries) == 1 && len(b.dropped) > 0 && (blames(err) || IsLockTimeout(err)) {
		// A row of the host's may refer to the instance, and keep it from being deleted, or be locked.
		// The outcome does not depend on that: the GC deletes the instance, or reports it.
		b.dropped = nil
		out, err = s.commitBatch(ctx, b, lock)
	}
	if len(entries) == 1 && len(b.keys) > 0 && blames(err) {
		// Postgres may refuse to change the next row of the key, not the outcome's own. Then the outcome
		// is committed without the promotion, and Promote deals with that row.
		keys := b.keys
		b.keys = nil
		if out, err = s.commitBatch(ctx, b, lock); err == nil {
			out.Missed = append(out.Missed, keys...)
		}
	}
	return out, err
}

// commitBatch commits a batch in a single attempt.
func (s *Store) commitBatch(ctx context.Context, b *batch, lock string) (Committed, error) {
	out := Committed{Applied: make(map[int64]bool, len(b.entries))}
	var err error
	if b.inParts() {
		err = s.interactive(ctx, lock, func(send send) error { return s.commitInParts(send, b, &out) })
	} else {
		err = s.transaction(ctx, lock, append(s.outcomes(b, &out), s.settle(b, &out)...)...)
	}
	if err != nil {
		return Committed{}, fmt.Errorf("commit %d outcomes: %w", len(b.entries), err)
	}
	out.Missed = append(out.Missed, b.left...)
	out.Runnable(b.entries)
	return out, nil
}

// Unknown reports whether an error leaves open if the sent statements took effect.
func Unknown(err error) bool { return unknown(err) }

// outcomes returns the fenced updates, and the riders up to the insertion of children.
func (s *Store) outcomes(b *batch, out *Committed) []entpgx.Stmt {
	var stmts []entpgx.Stmt
	switch rows := slices.Concat(b.kept.ids, b.ended.ids, b.ids, b.parents); {
	case b.slow && len(b.nodes) > 0:
		stmts = append(stmts, s.stmt(slowNodesSQL, nil, rows, b.nodes))
	case b.slow:
		stmts = append(stmts, s.stmt(slowSQL, nil, rows))
	}
	applied := noteIDs(out.Applied)
	if k := &b.kept; len(k.ids) > 0 {
		stmts = append(stmts, s.stmt(k.trail.pick(keptSQL, keptRecordedSQL), applied,
			k.trail.args(k.ids, k.tokens, k.visits, b.worker, b.mark, k.steps, k.states)...))
	}
	if e := &b.ended; len(e.ids) > 0 {
		stmts = append(stmts, s.stmt(e.trail.pick(doneSQL, doneRecordedSQL), applied,
			e.trail.args(e.ids, e.tokens, e.visits, b.worker, b.mark, e.results)...))
	}
	if len(b.ids) > 0 {
		gate := b.parents
		if b.slow { // slowSQL has locked them; one may have been deleted
			gate = nil
		}
		args := b.trail.args(b.ids, b.tokens, b.visits,
			b.worker, b.mark, b.kinds, b.steps, b.states, b.results, b.micros, b.times, b.errs, b.failures, b.lo, b.hi, b.names, b.children,
			b.parent, gate)
		switch {
		case len(b.nodes) > 0 && !b.slow: // slowNodesSQL has locked what waits for them
			stmts = append(stmts, s.stmt(b.trail.pick(commitNodesSQL, commitNodesRecordedSQL), applied, append(args, b.versions, b.unbegun, b.nodes)...))
		case b.versions == nil && b.unbegun == nil:
			stmts = append(stmts, s.stmt(b.trail.pick(commitSQL, commitRecordedSQL), applied, args...))
		default:
			stmts = append(stmts, s.stmt(b.trail.pick(migratedSQL, migratedRecordedSQL), applied, append(args, b.versions, b.unbegun)...))
		}
	}
	if u := &b.unless; len(u.ids) > 0 {
		stmts = append(stmts, s.stmt(unlessSQL, readTurned(out), u.ids, b.mark, u.steps, u.states, u.lo, u.hi, u.names, u.presented))
		if d := &b.undecided; len(d.ids) > 0 {
			stmts = append(stmts, s.stmt(undecidedSQL, nil, d.ids, b.mark, b.worker, d.visits, d.steps, d.attempts, d.took, d.kinds,
				d.errs, d.diffs))
		}
	}
	if p := &b.policies; len(p.ids) > 0 {
		text := policySQL
		if b.graph != nil { // which is alone
			text = policyGraphSQL
		}
		stmts = append(stmts, s.stmt(text, nil, p.ids, b.mark, p.done, p.failed, p.ended, p.micros, p.times, p.lo, p.hi, p.names,
			p.cancels))
	}
	if u := &b.streams; len(u.ids) > 0 {
		stmts = append(stmts, s.stmt(streamSQL, nil, u.ids, b.mark, u.most))
	}
	if r := &b.rejoins; len(r.ids) > 0 {
		stmts = append(stmts, s.stmt(rejoinSQL, readIfWoken(&out.Queues), r.ids, b.mark, r.done, r.failed, r.ended, r.micros,
			r.times, r.lo, r.hi, r.names, r.cancels, r.rounds, r.seenDone, r.seenFailed, r.streams))
	}
	if len(b.consumed) > 0 {
		stmts = append(stmts, s.stmt(consumeSQL, nil, b.consumed, b.mark))
	}
	if len(b.tombstones) > 0 {
		stmts = append(stmts, s.stmt(tombstoneSQL, nil, b.tombstones, b.mark))
	}
	if len(b.parked) > 0 {
		stmts = append(stmts, s.stmt(recheckSQL, readQueues(&out.Queues), b.parked, b.mark, b.presented))
	}
	if len(b.done) > 0 {
		drop, args := dropInboxSQL, []any{b.done, b.mark, b.received}
		if len(b.doneRecorded) > 0 {
			drop, args = dropInboxRecordedSQL, append(args, b.doneRecorded, b.worker)
		}
		stmts = append(stmts, s.stmt(drop, readUnread(out), args...))
	}
	if b.spawn.len() > 0 && !b.inParts() {
		stmts = append(stmts, s.spawn(&b.spawn, b.mark, nil))
	}
	return stmts
}

// endsGraphs reports whether a batch may end the root of a graph, whose live nodes are to be
// cancelled then. A store that has met no graph does not look: CancelRest would find nothing.
func (s *Store) endsGraphs(b *batch) bool {
	if b.graph != nil {
		s.graphs.Store(true)
	}
	return s.graphs.Load() && slices.ContainsFunc(b.entries, func(e Entry) bool { return e.Commit.Kind.Terminal() && e.Claim.Round > 0 })
}

// settle returns the riders that may change rows of others: of parents, and of the next instances
// of partition keys.
func (s *Store) settle(b *batch, out *Committed) []entpgx.Stmt {
	out.Rest = out.Rest || s.endsGraphs(b)
	stmts := s.join(&b.joiners, b.mark, readWoken(&out.Queues, &out.Rest))
	if len(b.nodes) > 0 {
		stmts = append(stmts, s.stmt(settleEdgesSQL, readSettled(&out.Queues, &out.Skips), b.nodes, b.mark))
	}
	if len(b.keys) > 0 {
		var p Promotion
		if b.revocable {
			stmts = append(stmts, s.stmt(revocableSQL, nil))
		}
		stmts = append(stmts, s.stmt(promoteSQL, func(rows pgx.Rows) error {
			err := p.read(rows)
			out.Queues, out.Missed = append(out.Queues, p.Queues...), p.Missed
			return err
		}, b.keys, b.holders, b.mark))
	}
	if len(b.dropped) > 0 { // after all that goes by the row
		stmts = append(stmts, s.stmt(dropInstancesSQL, nil, b.dropped, b.mark))
	}
	return stmts
}

func readQueues(into *[]string) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var q string
		_, err := pgx.ForEachRow(rows, []any{&q}, func() error { *into = append(*into, q); return nil })
		return err
	}
}

// readWoken notes the queues of woken parents, and whether one of them has a rest to cancel.
func readWoken(into *[]string, rest *bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var q string
		var some bool
		_, err := pgx.ForEachRow(rows, []any{&q, &some}, func() error {
			*into, *rest = append(*into, q), *rest || some
			return nil
		})
		return err
	}
}

func readTurned(out *Committed) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id int64
		var queue string
		_, err := pgx.ForEachRow(rows, []any{&id, &queue}, func() error {
			if out.Turned == nil {
				out.Turned = map[int64]bool{}
			}
			out.Turned[id], out.Queues = true, append(out.Queues, queue)
			return nil
		})
		return err
	}
}

func readUnread(out *Committed) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var u Unread
		_, err := pgx.ForEachRow(rows, []any{&u.Instance, &u.Name, &u.Number}, func() error { out.Unread = append(out.Unread, u); return nil })
		return err
	}
}

// noteIDs notes the ids that a statement returns.
func noteIDs(into map[int64]bool) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id int64
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { into[id] = true; return nil })
		return err
	}
}
