package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A signal to a correlation key that no instance occupies can be kept for the key's first
// occupant. The insert of that instance takes it, in its own transaction, before any claim of the
// instance.
//
// Keeping and inserting meet in the unique index of the keys. The keeper inserts an instance of
// the key, which it deletes in the same transaction: no transaction ever sees it, but until the
// commit the entry is there, and another insert of the key waits for it.
//
//   - If the keeper has the entry first, the insertion waits for its commit. The statement by which
//     the insertion takes kept signals follows it, so its snapshot has the signal.
//   - If the insertion has the entry first, the keeper waits for its commit, then inserts nothing
//     and keeps nothing. It looks again, finds the occupant, and delivers. If the insertion rolls
//     back, the keeper goes on and keeps.
//   - Two keepers of one key follow each other likewise, so duplicates and the number of kept
//     signals are exact.
//
// Inserts take kept signals while the process knows that there have been any (keeping): from its
// Start, from its polls, or since it has kept one itself. Before that an insertion looks, in the
// message that inserts, whether any are kept for its keys. That statement follows the one that
// inserts, so its snapshot has what a keeper has committed for which the insertion waited. A
// process looks (looks) once it knows that its role may take signals. So these leave them: inserts
// of a client that was not started, or whose role lacks the right, inserts from other languages,
// and an operator's Retry, which makes an occupant again. While signals are kept, polls hand them
// over to such occupants (HandOver). Nothing is lost meanwhile: a kept signal goes only by a
// statement that puts it into an inbox, or when it has expired and no live instance has occupied
// its key in time.

// keptMost bounds the signals that are kept for one key; Limits.Inbox may bound them closer.
const keptMost = 1000

// holdKeySQL takes the key's entry in the unique index, if the lock before it has found no target.
// $1 key
var holdKeySQL = named("hold key", `INSERT INTO {s}.gen_durable (fsm, step, queue, paused, correlation_key, correlation_scope)
SELECT 'kept signals', 'none', 'kept signals', true, $1::text, '{runnable,executing,awaiting_signal,awaiting_children}'::{s}.durable_status[]
WHERE nullif(current_setting('gendurable.target'), '') IS NULL
ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
RETURNING set_config('gendurable.held', id::text, true)`)

// keepSQL keeps the signal if the key is held. One of the same dedup key that has expired, and that
// the sweep has not deleted yet, makes room.
//
// $1 key $2 name $3 payload $4 dedup key $5 trace $6 for how long, µs $7 most of one key
var keepSQL = named("keep", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
seen AS MATERIALIZED (
  SELECT nullif(current_setting('gendurable.held', true), '') IS NOT NULL AS held,
    EXISTS (SELECT FROM {s}.kept_signals d WHERE d.key = $1::text AND d.dedup_key = $4::text AND d.expires_at > (SELECT now FROM c)) AS duplicate,
    (SELECT count(*) FROM (SELECT FROM {s}.kept_signals i WHERE i.key = $1::text AND i.expires_at > (SELECT now FROM c) LIMIT $7::bigint) n)
      >= $7::bigint AS full),
kept AS (
  INSERT INTO {s}.kept_signals (key, name, payload, dedup_key, trace, inserted_at, expires_at)
  SELECT $1::text, $2::text, $3::jsonb, $4::text, $5::jsonb, c.now, c.now + $6::bigint * interval '1 microsecond'
  FROM seen, c WHERE seen.held AND NOT seen.duplicate AND NOT seen.full
  ON CONFLICT (key, dedup_key) DO UPDATE SET name = excluded.name, payload = excluded.payload, trace = excluded.trace,
    inserted_at = excluded.inserted_at, expires_at = excluded.expires_at
  RETURNING id)
SELECT seen.held, seen.duplicate, seen.full FROM seen LEFT JOIN kept ON true`)

// letKeySQL deletes the instance of holdKeySQL. Its entry in the index lasts until the commit.
var letKeySQL = named("let key", `DELETE FROM {s}.gen_durable g WHERE g.id = nullif(current_setting('gendurable.held', true), '')::bigint
RETURNING set_config('gendurable.held', '', true)`)

// keeper is a signal for the instance that occupies a key, or to be kept for it.
type keeper struct {
	delivery
	held, again, over bool // the key was held; it keeps the signal already; it keeps too many
}

// attempt forgets the last attempt, and returns the statements of the next.
func (k *keeper) attempt(s *Store) []entpgx.Stmt {
	*k = keeper{delivery: delivery{to: k.to, signal: k.signal, inbox: k.inbox}}
	read := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&k.held, &k.again, &k.over}, func() error { return nil })
		return err
	}
	m := k.signal
	return []entpgx.Stmt{
		k.lock(s), s.stmt(holdKeySQL, nil, k.to.Key),
		s.stmt(keepSQL, read, k.to.Key, m.Name, cmp.Or(string(m.Payload), "{}"), optional(m.DedupKey), jsonText(m.Trace),
			max(1, micros(m.Keep)), min(keptMost, k.inbox)),
		s.stmt(letKeySQL, nil), k.insert(s), k.flip(s),
	}
}

// keep repeats attempts in the transaction of send until an instance has the signal, or it is kept.
func (s *Store) keep(to Address, m *step.Signal, inbox int, send send) (Delivery, error) {
	k := keeper{delivery: delivery{to: to, signal: m, inbox: inbox}}
	for range arriveAgain {
		if err := send(k.attempt(s)...); err != nil {
			return Delivery{}, err
		}
		switch {
		case k.target != 0:
			return k.verdict()
		case k.held && k.over && !k.again:
			return Delivery{}, ErrInboxFull
		case k.held:
			s.keeping.Store(true)
			return Delivery{Kept: true, Duplicate: k.again}, nil
		case k.moved:
			continue
		}
		var ended int64
		if err := send(s.stmt(endedHolderSQL, readOne(&ended), to.Key)); err != nil {
			return Delivery{}, err
		}
		if ended != 0 {
			return Delivery{}, &EndedError{Occupant: ended}
		}
	}
	return Delivery{}, errors.New("inserts took and freed the correlation key at every attempt: send the signal again")
}

// Keep delivers a signal to the live instance that occupies a key, as Deliver does, or else keeps
// it for the first that does, for at most m.Keep. It takes one transaction and one round trip. It
// returns the errors of Deliver, and an *EndedError.
func (s *Store) Keep(ctx context.Context, to Address, m *step.Signal, inbox int) (Delivery, error) {
	got, err := s.keep(to, m, inbox, func(stmts ...entpgx.Stmt) error { return s.transaction(ctx, slowLock, stmts...) })
	if err != nil && m.DedupKey == "" && unknown(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err != nil {
		return Delivery{}, fmt.Errorf("deliver signal %q to %s or keep it: %w", m.Name, to, err)
	}
	return got, nil
}

// Keep is [Store.Keep]. Until the host's transaction ends, inserts of the key wait for it.
func (h *Hosted) Keep(ctx context.Context, to Address, m *step.Signal, inbox int) (Delivery, error) {
	got, err := h.s.keep(to, m, inbox, func(stmts ...entpgx.Stmt) error { return h.tx.run(ctx, h.s.db, stmts...) })
	if err != nil {
		return Delivery{}, fmt.Errorf("deliver signal %q to %s or keep it in your transaction: %w", m.Name, to, err)
	}
	return got, nil
}

// takeKeptSQL moves the kept signals of keys into the inboxes of the live instances that occupy
// them, and wakes those that await one. It locks the instances first, as a delivery does (T1),
// then the signals. It waits for neither: a later look serves locked ones. An insertion sends it
// after its rows, which no other transaction can have locked, and only another program's
// transaction may hold their signals: every keeper of a key that was occupied meanwhile has ended.
// An instance that was inserted before a signal expired has it, however late the look comes. A
// signal whose dedup key the inbox knows is dropped, as a duplicate. Kept signals may fill the
// inbox beyond its bound. It returns the queues of instances that it woke. $1 keys
var takeKeptSQL = named("take kept", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
t AS MATERIALIZED (
  SELECT g.id, g.correlation_guard AS key, coalesce(g.status IN ('awaiting_signal', 'awaiting_children'), false) AS awaiting, g.awaits, g.inserted_at
  FROM {s}.gen_durable g WHERE g.correlation_guard = ANY($1::text[]) AND g.status NOT IN ('done', 'failed') ORDER BY g.id FOR NO KEY UPDATE SKIP LOCKED),
l AS MATERIALIZED (
  SELECT k.id, t.id AS target FROM {s}.kept_signals k JOIN t ON k.key = t.key AND k.expires_at > t.inserted_at
  ORDER BY k.id FOR UPDATE OF k SKIP LOCKED),
k AS (
  DELETE FROM {s}.kept_signals k USING l WHERE k.id = l.id
  RETURNING k.id, l.target, k.name, k.payload, k.dedup_key, k.trace, k.inserted_at),
s AS (
  INSERT INTO {s}.signals (target_id, name, payload, dedup_key, trace, inserted_at)
  SELECT k.target, k.name, k.payload, k.dedup_key, k.trace, k.inserted_at FROM k ORDER BY k.id
  ON CONFLICT (target_id, dedup_key) DO NOTHING RETURNING target_id, name)
UPDATE {s}.gen_durable g SET status = 'runnable', eligible_at = (SELECT now FROM c), await_deadline = NULL, pick_lane = {lane front},
  updated_at = (SELECT now FROM c)
FROM t WHERE g.id = t.id AND t.awaiting AND (SELECT true FROM s WHERE s.target_id = t.id AND s.name = ANY(t.awaits) LIMIT 1)
RETURNING g.queue`)

// takeKept returns the statement by which an insertion takes what is kept for the keys of its new
// instances, or nothing: off costs nothing.
func (s *Store) takeKept(list []*step.Spec, out []Inserted) []entpgx.Stmt {
	if !s.keeping.Load() {
		return nil
	}
	return s.takeIfKept(list, out)
}

// takeIfKept does the same even if the process does not know that signals are kept.
func (s *Store) takeIfKept(list []*step.Spec, out []Inserted) []entpgx.Stmt {
	var keys []string
	for i, x := range list {
		if x.Key != "" && x.Scope != step.ScopeNone && !out[i].Duplicate {
			keys = append(keys, x.Key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return []entpgx.Stmt{s.stmt(takeKeptSQL, nil, keys)}
}

// keptForSQL reads whether signals are kept for some of these keys. $1 keys
var keptForSQL = named("kept for", `SELECT EXISTS (SELECT FROM {s}.kept_signals k WHERE k.key = ANY($1::text[]))`)

// lookForKept returns a statement behind an insertion of keys, in its transaction, or nothing: it
// notes if signals are kept for some of them.
func (s *Store) lookForKept(keys []string) []entpgx.Stmt {
	if len(keys) == 0 || s.keeping.Load() || !s.looks.Load() {
		return nil
	}
	var is bool
	return []entpgx.Stmt{s.stmt(keptForSQL, func(rows pgx.Rows) error {
		err := readOne(&is)(rows)
		if is {
			s.keeping.Store(true)
		}
		return err
	}, keys)}
}

// keepingSQL reads whether signals are kept, and whether the role may take them. $1 schema
var keepingSQL = named("keeping", `SELECT EXISTS (SELECT FROM {s}.kept_signals), EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = 'kept_signals' AND has_table_privilege(c.oid, 'DELETE'))`)

// Keeping reports whether the process' inserts take kept signals.
func (s *Store) Keeping() bool { return s.keeping.Load() }

// NoteKeeping notes whether signals are kept, so that the process' inserts take them. Once noted it
// stays. Before that the inserts look, if the role may take signals.
func (s *Store) NoteKeeping(ctx context.Context) error {
	var is, may bool
	if err := s.one(ctx, slowLock, keepingSQL, readOne(&is, &may), s.schema); err != nil {
		return fmt.Errorf("check whether signals are kept: %w", err)
	}
	s.looks.Store(may)
	if is {
		s.keeping.Store(true)
	}
	return nil
}
