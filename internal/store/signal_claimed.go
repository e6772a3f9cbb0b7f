package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// A process that works may claim the instance that its signal wakes in the signal's own
// transaction, if it has a slot for it. Otherwise the signal makes the row runnable, its commit is
// flushed, and a claim follows, with another update and flush.
//
// No other transaction has the row in between: the delivery has it locked from before the signal
// is inserted until the COMMIT, which makes it executing with the signal in its inbox. A
// transaction that waits for the lock (another delivery, a cancel, a pause) finds it executing, as
// after a delivery and a claim. One that does not wait passes it by. The claim is read behind the
// COMMIT, as any claim, so the inbox comes from a later snapshot: it holds this signal and all
// that were delivered before. If the COMMIT gets no answer, there may be a row of this worker
// without a flight: see Held.

// Waker is what a delivery claims for.
type Waker struct {
	Worker   string
	Lease    time.Duration
	Queues   []string // those with a free slot
	Machines []string // MachineID of each registered machine
	Awaited  int      // as in ClaimParams
}

// Woken is what a delivery has claimed: at most one instance.
type Woken struct {
	Claims []*step.Claim
	// Err is why it is not known what was claimed, if it is Unknown. The signal may have been
	// delivered all the same.
	Err error
}

// deliverClaimSQL is deliverFlipSQL for a target that is claimed if the worker may run it: if it is
// of one of the queues and machines, not paused, and has no partition key, whose order only a claim
// knows. If it is not claimed, the row becomes what deliverFlipSQL makes of it. w reads the newest
// version of the row: the transaction has locked it before this statement's snapshot.
//
// The session has claimSQL's settings, which are set in any case: what an earlier claim has left
// there is not this one's.
//
// $1 name $2 worker $3 lease, µs $4 queues $5 machines
var deliverClaimSQL = named("deliver_claim", `
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS at),
w AS MATERIALIZED (
  SELECT g.id, coalesce(`+awaiting("$1")+`, false) AS woken, coalesce(`+awaiting("$1")+`, false) AND NOT g.paused AND g.partition_key IS NULL
    AND g.queue = ANY($4::text[]) AND (g.fsm || '/' || g.fsm_version) = ANY($5::text[]) AS taken
  FROM {s}.gen_durable g WHERE g.id = nullif(current_setting('gendurable.target'), '')::bigint),
u AS (
  UPDATE {s}.gen_durable g SET
    status = CASE WHEN w.taken THEN 'executing' WHEN w.woken THEN 'runnable' ELSE g.status END,
    eligible_at = CASE WHEN w.woken THEN clock.at ELSE g.eligible_at END,
    await_deadline = CASE WHEN w.woken THEN NULL ELSE g.await_deadline END,
    pick_lane = CASE WHEN w.woken THEN {lane front} ELSE g.pick_lane END,
    locked_by = CASE WHEN w.taken THEN $2::text ELSE g.locked_by END,
    lease_expires_at = CASE WHEN w.taken THEN (SELECT clock_timestamp()) + $3::bigint * interval '1 microsecond' ELSE g.lease_expires_at END,
    claim_token = CASE WHEN w.taken THEN {next token} ELSE g.claim_token END,
    updated_at = CASE WHEN w.woken THEN clock.at ELSE g.updated_at END
  FROM w CROSS JOIN clock WHERE g.id = w.id
  RETURNING CASE WHEN w.taken THEN g.id END AS id),
sum AS MATERIALIZED (SELECT coalesce('{' || min(u.id)::text || '}', '{}') AS ids FROM u)
SELECT sum.ids <> '{}', length(set_config('gendurable.target', '', true) || set_config('gendurable.claimed', sum.ids, false) ||
  set_config('gendurable.awaiting', sum.ids, false) || set_config('gendurable.fencing', '{}', false) ||
  set_config('gendurable.unsettled', '{}', false))
FROM sum`)

// claim is flip for a delivery with a waker.
func (d *delivery) claim(s *Store) entpgx.Stmt {
	read := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&d.claimed, nil}, func() error { return nil })
		return err
	}
	w := d.waker
	return s.stmt(deliverClaimSQL, read, d.signal.Name, w.Worker, micros(w.Lease), w.Queues, w.Machines)
}

// DeliverClaiming is Deliver, and claims the target for a worker if the signal wakes it and the
// worker may run it. It takes one round trip. It waits briefly for the target's row, since slots
// wait with it: after an error that IsLockTimeout, nothing was delivered.
func (s *Store) DeliverClaiming(ctx context.Context, to Address, m *step.Signal, inbox int, w *Waker) (Delivery, Woken, error) {
	var woken Woken
	d := &delivery{to: to, signal: m, inbox: inbox, waker: w}
	got, err := s.deliver(d, func(stmts ...entpgx.Stmt) error {
		p, out := ClaimParams{Limit: 1, Worker: w.Worker, Awaited: w.Awaited}, Claimed{}
		body := s.enclose(briefLock, stmts)
		err := s.db.Pipeline(ctx, append(body, s.look(&p, &out)...)...)
		if failed, ok := errors.AsType[*entpgx.StmtError](err); ok && failed.Sent && failed.Index >= len(body) {
			if d.claimed { // it may be unreadable: the next claim deals with that
				woken.Err = committedError{err}
			}
			return nil
		}
		woken.Claims = out.Claims
		for _, c := range out.Claims {
			c.Queue = d.queue
		}
		return err
	})
	if err == nil {
		return got, woken, nil
	}
	woken = Woken{Err: err}
	if m.DedupKey == "" && unknown(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return Delivery{}, woken, fmt.Errorf("deliver signal %q to %s: %w", m.Name, to, err)
}
