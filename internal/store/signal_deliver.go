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

// What a delivery can meet besides a fault of Postgres. In all three cases nothing was inserted, except maybe in the last.
var (
	ErrNoTarget  = errors.New("gendurable: no live target")
	ErrInboxFull = errors.New("gendurable: inbox full")
	// ErrUnknown is a COMMIT that got no answer, of what must not be sent again, since it could take effect twice: a delivery without a
	// dedup key, an insert without a correlation key.
	ErrUnknown = errors.New("gendurable: unknown whether it was committed")
)

// Address of an instance: its id, or else the correlation key that it occupies.
type Address struct {
	ID  int64
	Key string // "": by ID
}

func (a Address) String() string {
	if a.Key != "" {
		return fmt.Sprintf("key %q", a.Key)
	}
	return fmt.Sprintf("instance %d", a.ID)
}

// Delivery is what became of a signal. A duplicate inserted nothing and woke nobody.
type Delivery struct {
	Target    int64
	Queue     string // of the target: what to nudge if Runnable
	Woken     bool   // by this signal
	Runnable  bool   // woken now, or runnable already: a claim may have passed over the row while this delivery had it locked
	Duplicate bool
	Inserted  bool // by DeliverOrInsert: the target is new
}

// deliverAgain bounds the fresh looks at a key that moved from one instance to another under a delivery (T4).
const deliverAgain = 3

// Deliver puts a signal into the inbox of a live instance that holds fewer than inbox unconsumed ones, and wakes it if it awaits that
// name. One transaction, one round trip. ErrNoTarget, ErrInboxFull and ErrUnknown tell what they say; after any other error nothing was
// delivered, or a dedup key makes it safe to deliver again (the second time may then report its own first as the duplicate).
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

// deliver tries again, in whatever transaction send speaks to, while the key moves from one instance to another.
func (s *Store) deliver(d *delivery, send send) (Delivery, error) {
	for try := 0; ; try++ {
		*d = delivery{to: d.to, signal: d.signal, inbox: d.inbox}
		if err := send(d.lock(s), d.insert(s), d.flip(s)); err != nil {
			return Delivery{}, err
		}
		if !d.moved || try == deliverAgain {
			return d.verdict()
		}
	}
}

// delivery is one attempt: three statements that find each other through the transaction-local setting gendurable.target, since in a
// pipeline no result reaches the client in between. They need nothing but a READ COMMITTED transaction around them, whoever's it is.
type delivery struct {
	to     Address
	signal *step.Signal
	inbox  int

	target    int64 // 0: none
	queue     string
	awaits    bool
	runnable  bool
	duplicate bool
	full      bool
	sent      bool
	moved     bool // no row was locked, and yet a live instance holds the key
}

func (d *delivery) verdict() (Delivery, error) {
	woken := d.sent && d.awaits
	got := Delivery{Target: d.target, Queue: d.queue, Woken: woken, Runnable: woken || d.runnable}
	switch {
	case d.target == 0:
		return Delivery{}, ErrNoTarget
	case d.sent:
		return got, nil
	case d.duplicate || !d.full:
		// Neither seen nor full, and yet not inserted: the unique index met a row from outside the engine's locks.
		got.Duplicate = true
		return got, nil
	default:
		return got, ErrInboxFull
	}
}

// The target is locked before anything is written (T1, T3, T6): whoever parks, ends or deletes it is then before or after this delivery,
// never beside it. NO KEY, for the foreign key's KEY SHARE of an open delivery must not hide the row from the pick (T8). What the lock
// returns is the newest version of the row, so awaits and queue hold until the end of this transaction.
//
// The setting is cleared where there is no target: a transaction may deliver more than once.
const deliverLockByIDSQL = `
SELECT l.id, l.queue, l.awaits, l.runnable, set_config('gendurable.target', coalesce(l.id::text, ''), true)
FROM (SELECT 1) one LEFT JOIN (
  SELECT g.id, g.queue, coalesce(g.status = 'awaiting_signal' AND $2::text = ANY(g.awaits), false) AS awaits,
    g.status = 'runnable' AS runnable
  FROM {s}.gen_durable g WHERE g.id = $1::bigint AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE) l ON true`

// By key the guard itself is locked and re-checked in one statement: an id looked up first may belong to an instance that has meanwhile
// ended while another holds the key (T4).
const deliverLockByKeySQL = `
SELECT l.id, l.queue, l.awaits, l.runnable, set_config('gendurable.target', coalesce(l.id::text, ''), true)
FROM (SELECT 1) one LEFT JOIN (
  SELECT g.id, g.queue, coalesce(g.status = 'awaiting_signal' AND $2::text = ANY(g.awaits), false) AS awaits,
    g.status = 'runnable' AS runnable
  FROM {s}.gen_durable g WHERE g.correlation_guard = $1::text AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE) l ON true`

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
		return s.stmt("deliver_lock_by_key", deliverLockByKeySQL, read, d.to.Key, d.signal.Name)
	}
	return s.stmt("deliver_lock_by_id", deliverLockByIDSQL, read, d.to.ID, d.signal.Name)
}

// A later statement than the lock, so that its snapshot sees what the lock waited for: the duplicate and the count are exact.
// A duplicate is one also while the inbox is full, and of a consumed signal (its tombstone, T5); tombstones do not count (T12).
// Whatever is not inserted clears the target, so that the flip finds nobody to wake (T93).
//
// moved: without a target, a fresh look tells a key that nobody holds from one whose holder the lock's recheck has just lost.
const deliverInsertSQL = `
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
FROM seen LEFT JOIN sent ON true`

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
	return s.stmt("deliver_insert", deliverInsertSQL, read,
		d.signal.Name, payload, optional(d.signal.DedupKey), d.inbox, optional(d.to.Key), jsonText(d.signal.Trace))
}

// The condition is in SET: the row is ours already, and a WHERE that missed would lose the wake-up. awaits stays, so that the claim
// finds what it was woken for. pick_lane 0: a parked row keeps no place in the scheduler's lanes. The last to need the setting clears it:
// the transaction may be a host's, which is left without one of our targets.
const deliverFlipSQL = `
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS at)
UPDATE {s}.gen_durable g SET
  status = CASE WHEN g.status = 'awaiting_signal' AND $1::text = ANY(g.awaits) THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN g.status = 'awaiting_signal' AND $1::text = ANY(g.awaits) THEN clock.at ELSE g.eligible_at END,
  await_deadline = CASE WHEN g.status = 'awaiting_signal' AND $1::text = ANY(g.awaits) THEN NULL ELSE g.await_deadline END,
  pick_lane = CASE WHEN g.status = 'awaiting_signal' AND $1::text = ANY(g.awaits) THEN 0 ELSE g.pick_lane END,
  updated_at = CASE WHEN g.status = 'awaiting_signal' AND $1::text = ANY(g.awaits) THEN clock.at ELSE g.updated_at END
FROM clock WHERE g.id = nullif(current_setting('gendurable.target'), '')::bigint
RETURNING set_config('gendurable.target', '', true)`

func (d *delivery) flip(s *Store) entpgx.Stmt {
	return s.stmt("deliver_flip", deliverFlipSQL, nil, d.signal.Name)
}

// Holder is who keeps a row from being locked.
type Holder struct {
	PID         int32
	State       string // of its session, as in pg_stat_activity: "idle in transaction" is a transaction that somebody left open
	Application string
}

// xmax of a locked row is its locker, unless several share the row: then nobody is found, which is all that a log line loses.
const holderSQL = `
SELECT l.pid, coalesce(a.state, ''), coalesce(a.application_name, '')
FROM {s}.gen_durable g
JOIN pg_catalog.pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = g.xmax
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE g.id = $1::bigint OR g.correlation_guard = $2::text LIMIT 1`

// Holder looks who holds the row of an instance now; ok is false if nobody can be named. For the log line of a lock that was waited for in
// vain (T9): no deadlock detector sees a transaction that its owner has left open.
func (s *Store) Holder(ctx context.Context, of Address) (h Holder, ok bool, err error) {
	err = s.db.Pipeline(ctx, s.stmt("holder", holderSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			ok = true
			if err := rows.Scan(&h.PID, &h.State, &h.Application); err != nil {
				return err
			}
		}
		return rows.Err()
	}, of.ID, optional(of.Key)))
	if err != nil {
		return Holder{}, false, fmt.Errorf("look who holds %s: %w", of, err)
	}
	return h, ok, nil
}

const codeLockTimeout = "55P03"

// IsLockTimeout reports whether a statement waited in vain for a row that someone else holds.
func IsLockTimeout(err error) bool { return hasCode(err, codeLockTimeout) }
