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

// A delivery returns one of these errors, besides faults of Postgres. It has inserted nothing,
// except perhaps with ErrUnknown.
var (
	ErrNoTarget  = errors.New("gendurable: no live target")
	ErrInboxFull = errors.New("gendurable: inbox full")
	// ErrUnknown is returned when COMMIT was not acknowledged and a retry could insert or deliver
	// twice: for a delivery without a dedup key, or an insert without a correlation key.
	ErrUnknown = errors.New("gendurable: unknown whether it was committed")
)

// Address names an instance: by its id, or by the correlation key that it occupies.
type Address struct {
	ID  int64
	Key string // "": the address is ID
}

func (a Address) String() string {
	if a.Key != "" {
		return fmt.Sprintf("key %q", a.Key)
	}
	return fmt.Sprintf("instance %d", a.ID)
}

// Delivery reports the effect of a delivery. A duplicate inserted nothing and woke no instance.
type Delivery struct {
	Target    int64
	Queue     string // the target's queue, to nudge if Runnable
	Woken     bool   // this signal woke the target
	Runnable  bool   // the target was woken now, or was runnable before: a claim may have skipped the row while this delivery held its lock
	Duplicate bool
	Inserted  bool // DeliverOrInsert has inserted the target
	Kept      bool // Keep has kept the signal: there is no target
	Claimed   bool // DeliverClaiming has claimed the target, which is not Runnable then
}

// deliverAgain bounds how often Deliver looks anew because the key moved from one instance to
// another (T4).
const deliverAgain = 3

// Deliver puts a signal into the inbox of a live instance that holds fewer than inbox unconsumed
// signals, and wakes the instance if it awaits that name. It takes one transaction and one round
// trip. Its errors are ErrNoTarget, ErrInboxFull and ErrUnknown. After any other error nothing was
// delivered, or the signal's dedup key makes it safe to deliver again; the second delivery may then
// report the first as its duplicate.
func (s *Store) Deliver(ctx context.Context, to Address, m *step.Signal, inbox int) (Delivery, error) {
	got, err := s.deliver(&delivery{to: to, signal: m, inbox: inbox}, func(stmts ...entpgx.Stmt) error {
		return s.transaction(ctx, slowLock, stmts...)
	})
	if err != nil && m.DedupKey == "" && unknown(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err != nil {
		return Delivery{}, fmt.Errorf("deliver signal %q to %s: %w", m.Name, to, err)
	}
	return got, nil
}

// deliver repeats attempts in the transaction of send while the key moves from one instance to
// another.
func (s *Store) deliver(d *delivery, send send) (Delivery, error) {
	for try := 0; ; try++ {
		*d = delivery{to: d.to, signal: d.signal, inbox: d.inbox, waker: d.waker}
		wake := d.flip
		if d.waker != nil {
			wake = d.claim
		}
		if err := send(d.lock(s), d.insert(s), wake(s)); err != nil {
			return Delivery{}, err
		}
		if !d.moved || try == deliverAgain {
			return d.verdict()
		}
	}
}

// delivery is one attempt of three statements. They hand the target on in the transaction-local
// setting gendurable.target, since in a pipeline no result reaches the client between them. They
// need only a READ COMMITTED transaction around them, which may be the host's.
type delivery struct {
	to     Address
	signal *step.Signal
	inbox  int
	waker  *Waker // nil: whoever claims next claims the target

	target    int64 // 0: none
	queue     string
	awaits    bool
	runnable  bool
	duplicate bool
	full      bool
	sent      bool
	claimed   bool
	moved     bool // no row was locked, although a live instance holds the key
}

func (d *delivery) verdict() (Delivery, error) {
	woken := d.sent && d.awaits
	got := Delivery{Target: d.target, Queue: d.queue, Woken: woken, Runnable: (woken || d.runnable) && !d.claimed, Claimed: d.claimed}
	switch {
	case d.target == 0:
		return Delivery{}, ErrNoTarget
	case d.sent:
		return got, nil
	case d.duplicate || !d.full:
		// The signal was not inserted although the inbox had neither a duplicate nor too many: the unique
		// index found a row that was written without the engine's locks.
		got.Duplicate = true
		return got, nil
	default:
		return got, ErrInboxFull
	}
}

// awaiting is the condition that g is parked and a signal of this name wakes it: one that awaits
// signals, or one that awaits children whose join names some (fsm.ChildrenOutcome.Or). Others that
// await children await no name.
func awaiting(name string) string {
	return `g.status IN ('awaiting_signal', 'awaiting_children') AND ` + name + `::text = ANY(g.awaits)`
}

// deliverLockByIDSQL locks the target before anything is written (T1, T3, T6). A park, end or
// deletion then comes before or after this delivery, never beside it. The lock is FOR NO KEY
// UPDATE, since the foreign key's KEY SHARE of an open delivery must not hide the row from the
// pick (T8). The lock returns the newest version of the row, so awaits and queue hold until the
// end of this transaction.
//
// Without a target, the statement clears the setting: a transaction may deliver more than once. $1
// id $2 name
var deliverLockByIDSQL = named("deliver_lock_by_id", `
SELECT l.id, l.queue, l.awaits, l.runnable, set_config('gendurable.target', coalesce(l.id::text, ''), true)
FROM (SELECT 1) one LEFT JOIN (
  SELECT g.id, g.queue, coalesce(`+awaiting("$2")+`, false) AS awaits,
    g.status = 'runnable' AS runnable
  FROM {s}.gen_durable g WHERE g.id = $1::bigint AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE) l ON true`)

// deliverLockByKeySQL locks and re-checks the guard itself, in one statement. An id that was looked
// up first might belong to an instance that has meanwhile ended, while another holds the key (T4).
// $1 key $2 name
var deliverLockByKeySQL = named("deliver_lock_by_key", `
SELECT l.id, l.queue, l.awaits, l.runnable, set_config('gendurable.target', coalesce(l.id::text, ''), true)
FROM (SELECT 1) one LEFT JOIN (
  SELECT g.id, g.queue, coalesce(`+awaiting("$2")+`, false) AS awaits,
    g.status = 'runnable' AS runnable
  FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE) l ON true`)

func (d *delivery) lock(s *Store) entpgx.Stmt {
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var id *int64
			var queue *string
			var awaits, runnable *bool
			if err := rows.Scan(&id, &queue, &awaits, &runnable, nil); err != nil {
				return err
			}
			if id != nil {
				d.target, d.queue, d.awaits, d.runnable = *id, *queue, *awaits, *runnable
			}
		}
		return rows.Err()
	}
	if d.to.Key != "" {
		return s.stmt(deliverLockByKeySQL, read, d.to.Key, d.signal.Name)
	}
	return s.stmt(deliverLockByIDSQL, read, d.to.ID, d.signal.Name)
}

// deliverInsertSQL inserts the signal. It is a separate statement after the lock, so that its
// snapshot contains what the lock waited for: the duplicate and the count are exact. A duplicate
// counts as one even if the inbox is full, or if the earlier signal is consumed (its tombstone,
// T5); tombstones do not count towards the inbox (T12). If nothing is inserted, the statement
// clears the target, so that deliverFlipSQL wakes no instance (T93).
//
// The fourth column is for moved. If there is no target, it tells whether a live instance holds the
// key: then the lock's re-check has just lost the key's previous holder.
//
// $1 name $2 payload $3 dedup key $4 most in the inbox $5 key $6 trace
var deliverInsertSQL = named("deliver_insert", `
WITH seen AS MATERIALIZED (
  SELECT t.id,
    EXISTS (SELECT FROM {s}.signals d WHERE d.target_id = t.id AND d.dedup_key = $3::text) AS duplicate,
    (SELECT count(*) FROM (SELECT FROM {s}.signals i WHERE i.target_id = t.id AND i.consumed_at IS NULL LIMIT $4::bigint) n) >= $4::bigint AS full
  FROM (SELECT nullif(current_setting('gendurable.target'), '')::bigint AS id) t),
sent AS (
  INSERT INTO {s}.signals (target_id, name, payload, dedup_key, trace)
  SELECT seen.id, $1::text, $2::jsonb, $3::text, $6::jsonb FROM seen WHERE seen.id IS NOT NULL AND NOT seen.duplicate AND NOT seen.full
  ON CONFLICT (target_id, dedup_key) DO NOTHING
  RETURNING id)
SELECT seen.duplicate, seen.full, sent.id IS NOT NULL,
  seen.id IS NULL AND EXISTS (
    SELECT FROM {s}.gen_durable g WHERE g.correlation_guard = $5::text AND g.status NOT IN ('done', 'failed')),
  set_config('gendurable.target', CASE WHEN sent.id IS NULL THEN '' ELSE seen.id::text END, true)
FROM seen LEFT JOIN sent ON true`)

func (d *delivery) insert(s *Store) entpgx.Stmt {
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			if err := rows.Scan(&d.duplicate, &d.full, &d.sent, &d.moved, nil); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	payload := cmp.Or(string(d.signal.Payload), "{}")
	return s.stmt(deliverInsertSQL, read,
		d.signal.Name, payload, optional(d.signal.DedupKey), d.inbox, optional(d.to.Key), jsonText(d.signal.Trace))
}

// deliverFlipSQL wakes the target if it awaits the signal. The condition is in SET, since the row
// is ours already, and a WHERE that missed would lose the wake-up. awaits stays, so that the claim
// finds the signals that woke the instance. pick_lane becomes 0, since a parked row keeps no place
// in the scheduler's lanes. As the last statement to need the setting, it clears it: the
// transaction may be a host's, which must not keep a target of ours. $1 name
var deliverFlipSQL = named("deliver_flip", `
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS at)
UPDATE {s}.gen_durable g SET
  status = CASE WHEN `+awaiting("$1")+` THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN `+awaiting("$1")+` THEN clock.at ELSE g.eligible_at END,
  await_deadline = CASE WHEN `+awaiting("$1")+` THEN NULL ELSE g.await_deadline END,
  pick_lane = CASE WHEN `+awaiting("$1")+` THEN {lane front} ELSE g.pick_lane END,
  updated_at = CASE WHEN `+awaiting("$1")+` THEN clock.at ELSE g.updated_at END
FROM clock WHERE g.id = nullif(current_setting('gendurable.target'), '')::bigint
RETURNING set_config('gendurable.target', '', true)`)

func (d *delivery) flip(s *Store) entpgx.Stmt {
	return s.stmt(deliverFlipSQL, nil, d.signal.Name)
}

// Holder is a session that keeps others from locking a row.
type Holder struct {
	PID         int32
	State       string // the session's state, as in pg_stat_activity: "idle in transaction" means that somebody left a transaction open
	Application string
}

// holderSQL takes a locked row's xmax for its locker. If several share the row, it finds none,
// which costs a log line its holder only.
var holderSQL = named("holder", `
SELECT l.pid, coalesce(a.state, ''), coalesce(a.application_name, '')
FROM {s}.gen_durable g
JOIN pg_catalog.pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = g.xmax
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE g.id = $1::bigint OR g.correlation_guard = $2::text LIMIT 1`)

// Holder finds out who holds the row of an instance now. ok is false if it cannot find the holder.
// It is for the log line about a lock that was waited for in vain (T9): no deadlock detector sees a
// transaction that its owner has left open.
func (s *Store) Holder(ctx context.Context, of Address) (h Holder, ok bool, err error) {
	err = s.pipeline(ctx, s.stmt(holderSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			ok = true
			if err := rows.Scan(&h.PID, &h.State, &h.Application); err != nil {
				return err
			}
		}
		return rows.Err()
	}, of.ID, optional(of.Key)))
	if err != nil {
		return Holder{}, false, fmt.Errorf("look for the session that has locked %s: %w", of, err)
	}
	return h, ok, nil
}

const codeLockTimeout = "55P03"

// IsLockTimeout reports whether a statement waited in vain for a row lock.
func IsLockTimeout(err error) bool { return hasCode(err, codeLockTimeout) }
