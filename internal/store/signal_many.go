package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// Letter is a signal with its address.
type Letter struct {
	To     Address
	Signal *step.Signal
}

// Answer is what became of a letter: a delivery, or an ErrNoTarget or ErrInboxFull. Woken says that
// one of the letters woke the target.
type Answer struct {
	Delivery
	Err error
}

// deliverManyLockSQL locks all targets, in ascending id, as deliver_lock_by_id does. It looks keys
// up first, since only ids have an order. An instance that has left a key while the lock waited is
// no target, since the key is compared with the locked version of the row (T4). What the lock
// found goes on in the setting gendurable.targets, an array in the order of the letters, with NULL
// for no target. $1 ids $2 keys, one of both for each letter
var deliverManyLockSQL = named("deliver_many_lock", `
WITH m AS MATERIALIZED (SELECT m.id, m.key, m.n FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY m (id, key, n)),
f AS MATERIALIZED (
  SELECT g.id FROM {s}.gen_durable g WHERE g.correlation_guard = ANY(ARRAY(SELECT DISTINCT m.key FROM m WHERE m.key IS NOT NULL))
  UNION SELECT m.id FROM m WHERE m.id IS NOT NULL),
l AS MATERIALIZED (
  SELECT g.id, g.correlation_guard AS key, g.queue, g.status = 'runnable' AS runnable
  FROM {s}.gen_durable g WHERE g.id = ANY(ARRAY(SELECT f.id FROM f)) AND g.status NOT IN ('done', 'failed') ORDER BY g.id FOR NO KEY UPDATE),
t AS MATERIALIZED (
  SELECT m.n, coalesce(i.id, k.id) AS id, coalesce(i.queue, k.queue) AS queue, coalesce(i.runnable, k.runnable) AS runnable
  FROM m LEFT JOIN l i ON i.id = m.id LEFT JOIN l k ON k.key = m.key),
s AS MATERIALIZED (SELECT length(set_config('gendurable.targets', array_agg(t.id ORDER BY t.n)::text, true)) AS set FROM t)
SELECT t.id, t.queue, t.runnable, s.set FROM t CROSS JOIN s ORDER BY t.n`)

// deliverManyInsertSQL inserts the signals as so many of deliver_insert would, one after the other:
// also a signal of the same call is a duplicate's original, and fills the inbox. It answers with a
// letter for each: s for sent, d for a duplicate, f for a full inbox, - for no target.
//
// If a live instance holds a key that no locked row has, the key has just moved, and the statement
// inserts nothing: the second column says so, and all begins anew. $7 is set where this is the last
// attempt. The setting keeps the targets of the inserted signals.
//
// The look for a dedup key has a LIMIT, since an EXISTS would be answered from a hash of the whole
// table.
//
// $1 names $2 payloads $3 dedup keys $4 traces $5 keys $6 most in an inbox $7 insert all the same
var deliverManyInsertSQL = named("deliver_many_insert", `
WITH m AS MATERIALIZED (
  SELECT m.n, m.id, m.name, m.payload, m.dedup, m.trace, m.key,
    m.dedup IS NULL OR row_number() OVER (PARTITION BY m.id, m.dedup ORDER BY m.n) = 1 AS first,
    (SELECT true FROM {s}.signals d WHERE d.target_id = m.id AND d.dedup_key = m.dedup LIMIT 1) IS NOT NULL AS known
  FROM unnest(current_setting('gendurable.targets')::bigint[], $1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
    WITH ORDINALITY m (id, name, payload, dedup, trace, key, n)),
o AS MATERIALIZED (
  SELECT EXISTS (SELECT FROM {s}.gen_durable g WHERE g.correlation_guard = ANY(ARRAY(SELECT m.key FROM m WHERE m.id IS NULL AND m.key IS NOT NULL))
    AND g.status NOT IN ('done', 'failed')) AND NOT $7::boolean AS moved),
h AS MATERIALIZED (
  SELECT t.id, (SELECT count(*) FROM (SELECT FROM {s}.signals i WHERE i.target_id = t.id AND i.consumed_at IS NULL LIMIT $6::bigint) n) AS held
  FROM (SELECT DISTINCT m.id FROM m WHERE m.id IS NOT NULL) t),
r AS MATERIALIZED (
  SELECT m.*, count(*) FILTER (WHERE m.first AND NOT m.known) OVER (PARTITION BY m.id ORDER BY m.n) + h.held <= $6::bigint AS fits
  FROM m JOIN h ON h.id = m.id),
sent AS (
  INSERT INTO {s}.signals (target_id, name, payload, dedup_key, trace)
  SELECT r.id, r.name, r.payload::jsonb, r.dedup, r.trace::jsonb FROM r
  WHERE r.first AND NOT r.known AND r.fits AND NOT (SELECT moved FROM o) ORDER BY r.n
  ON CONFLICT (target_id, dedup_key) DO NOTHING
  RETURNING target_id, dedup_key),
v AS MATERIALIZED (
  SELECT r.n, r.id, CASE WHEN r.known THEN 'd'
    WHEN NOT first_value(r.fits) OVER (PARTITION BY r.id, CASE WHEN r.dedup IS NULL THEN r.n END, r.dedup ORDER BY r.n) THEN 'f'
    WHEN r.first AND (r.dedup IS NULL OR (r.id, r.dedup) IN (SELECT target_id, dedup_key FROM sent)) THEN 's' ELSE 'd' END AS verdict FROM r),
a AS MATERIALIZED (
  SELECT string_agg(coalesce(v.verdict, '-'), '' ORDER BY m.n) AS verdicts, array_agg(CASE WHEN v.verdict = 's' THEN v.id END ORDER BY m.n)::text AS ids
  FROM m LEFT JOIN v ON v.n = m.n)
SELECT a.verdicts, o.moved, length(set_config('gendurable.targets', CASE WHEN o.moved THEN '{}' ELSE a.ids END, true)) FROM a CROSS JOIN o`)

// deliverManyFlipSQL wakes the targets that await one of their signals, as deliver_flip does, and
// clears the setting. All rows are locked, so the snapshot has their newest versions. $1 names
var deliverManyFlipSQL = named("deliver_many_flip", `
WITH c AS MATERIALIZED (SELECT statement_timestamp() AS at),
m AS MATERIALIZED (
  SELECT m.id, array_agg(m.name) AS names FROM unnest(current_setting('gendurable.targets')::bigint[], $1::text[]) m (id, name)
  WHERE m.id IS NOT NULL GROUP BY m.id),
u AS (
  UPDATE {s}.gen_durable g SET status = 'runnable', eligible_at = (SELECT at FROM c), await_deadline = NULL, pick_lane = {lane front},
    updated_at = (SELECT at FROM c)
  FROM m WHERE g.id = m.id AND g.status IN ('awaiting_signal', 'awaiting_children') AND g.awaits && m.names
  RETURNING g.id),
s AS MATERIALIZED (SELECT length(set_config('gendurable.targets', '', true)) + n.n AS set FROM (SELECT count(*) AS n FROM u) n)
SELECT u.id, s.set FROM s LEFT JOIN u ON true`)

// letters are one attempt to deliver many signals.
type letters struct {
	list  []Letter
	inbox int
	last  bool // a key that moves now has no target

	ids                  []*int64
	keys, dedups, traces []*string
	names, payloads      []string
	answers              []Answer
	runnable             []bool
	verdicts             string
	moved                bool
}

func newLetters(list []Letter, inbox int) *letters {
	l := &letters{list: list, inbox: inbox}
	for i := range list {
		to, m := list[i].To, list[i].Signal
		var id *int64
		if to.Key == "" {
			id = &to.ID
		}
		l.ids, l.keys = append(l.ids, id), append(l.keys, optional(to.Key))
		l.names, l.payloads = append(l.names, m.Name), append(l.payloads, cmp.Or(string(m.Payload), "{}"))
		l.dedups, l.traces = append(l.dedups, optional(m.DedupKey)), append(l.traces, jsonText(m.Trace))
	}
	return l
}

// attempt forgets the last attempt, and returns the statements of the next.
func (l *letters) attempt(s *Store) []entpgx.Stmt {
	l.answers, l.runnable, l.verdicts, l.moved = nil, nil, "", false
	lock := func(rows pgx.Rows) error {
		var id *int64
		var queue *string
		var runnable *bool
		_, err := pgx.ForEachRow(rows, []any{&id, &queue, &runnable, nil}, func() error {
			var a Answer
			if id != nil {
				a.Target, a.Queue = *id, *queue
			}
			l.answers, l.runnable = append(l.answers, a), append(l.runnable, id != nil && *runnable)
			return nil
		})
		return err
	}
	insert := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&l.verdicts, &l.moved, nil}, func() error { return nil })
		return err
	}
	woken := map[int64]bool{}
	flip := func(rows pgx.Rows) error {
		var id *int64
		_, err := pgx.ForEachRow(rows, []any{&id, nil}, func() error {
			if id != nil {
				woken[*id] = true
			}
			return nil
		})
		if err == nil {
			l.judge(woken)
		}
		return err
	}
	return []entpgx.Stmt{
		s.stmt(deliverManyLockSQL, lock, l.ids, l.keys),
		s.stmt(deliverManyInsertSQL, insert, l.names, l.payloads, l.dedups, l.traces, l.keys, l.inbox, l.last),
		s.stmt(deliverManyFlipSQL, flip, l.names),
	}
}

// judge makes the answers of what the statements found. A target that was woken is runnable for
// each of its letters.
func (l *letters) judge(woken map[int64]bool) {
	for i := range l.answers {
		a := &l.answers[i]
		switch l.verdicts[i] {
		case 's':
			a.Woken = woken[a.Target]
		case 'd':
			a.Duplicate = true
		case 'f':
			a.Err = ErrInboxFull
		default:
			a.Delivery, a.Err = Delivery{}, ErrNoTarget
		}
		a.Runnable = a.Err == nil && (woken[a.Target] || l.runnable[i])
		if a.Err != nil {
			a.Err = fmt.Errorf("deliver signal %q to %s: %w", l.list[i].Signal.Name, l.list[i].To, a.Err)
		}
	}
}

// deliverMany repeats attempts in the transaction of send while a key moves from one instance to
// another.
func (s *Store) deliverMany(l *letters, send send) ([]Answer, error) {
	for try := 0; ; try++ {
		l.last = try == deliverAgain
		if err := send(l.attempt(s)...); err != nil {
			return nil, err
		}
		if !l.moved {
			return l.answers, nil
		}
	}
}

// DeliverMany delivers signals as so many calls of Deliver would, one after the other, in one
// transaction and one round trip. It waits for a locked target for half a second only, since the
// other targets stay locked meanwhile. It returns an answer for each. Its own errors are
// ErrUnknown, after which each may have been delivered or all have not, and faults of Postgres,
// after which none was.
func (s *Store) DeliverMany(ctx context.Context, list []Letter, inbox int) ([]Answer, error) {
	out, err := s.deliverMany(newLetters(list, inbox), func(stmts ...entpgx.Stmt) error { return s.transaction(ctx, fastLock, stmts...) })
	if err != nil && unknown(err) && !allDeduped(list) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err != nil {
		return nil, fmt.Errorf("deliver %d signals: %w", len(list), err)
	}
	return out, nil
}

// DeliverMany is [Store.DeliverMany]. The targets stay locked until the host's transaction ends.
func (h *Hosted) DeliverMany(ctx context.Context, list []Letter, inbox int) ([]Answer, error) {
	out, err := h.s.deliverMany(newLetters(list, inbox), func(stmts ...entpgx.Stmt) error { return h.run(ctx, stmts...) })
	if err != nil {
		return nil, fmt.Errorf("deliver %d signals in your transaction: %w", len(list), err)
	}
	return out, nil
}

func allDeduped(list []Letter) bool {
	for _, l := range list {
		if l.Signal.DedupKey == "" {
			return false
		}
	}
	return true
}
