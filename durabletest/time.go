package durabletest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/fsm"
)

// Advance drains, and then lets d pass: everything that becomes due within d runs, in the order in
// which it is due, and so does what follows from it. A timer that starts anew each time fires as
// often as its period fits into d.
//
// Advance does not move the clock of Postgres. Instead it moves the times of all instances that
// have not ended nearer, in one transaction each time: eligible_at (delays, back-offs), the
// deadlines of awaits and of the instances. So it does with windows (fsm.Spec.Throttle), with the
// rates of gates, and with gates that are closed for a time. Schedules follow a calendar of the
// kit's, which begins at Config.Calendar and moves by exactly d: each occurrence in that time
// fires when its turn comes. Nothing else moves. inserted_at, updated_at and finished_at stay, so
// no retention passes. Times in the states of machines stay, and so does time.Now: an absolute
// time (At, Until) that a step sets after an Advance is as far away as the real clock says.
//
// The time that the test itself takes does not count: the methods of a kit move all of these times
// away by the time since the last of them did. So what a test sees does not depend on how busy the
// machine is, as long as things are due at least some tenths of a second apart.
//
// d is at most 100 years, as any delay. It returns the errors of [Kit.Drain]; the limit counts all
// steps of the Advance.
func (k *Kit) Advance(ctx context.Context, d time.Duration, opts ...Option) (Drained, error) {
	if d < 0 || d > fsm.MaxDelay {
		return Drained{}, fmt.Errorf("advance by %v: want 0 to %v", d, fsm.MaxDelay)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var all Drained
	err := k.advance(ctx, d, chosen(opts), &all)
	return all, errors.Join(err, k.sum(ctx, &all))
}

func (k *Kit) advance(ctx context.Context, left time.Duration, o options, all *Drained) error {
	for {
		if err := k.drain(ctx, o, all); err != nil {
			return err
		}
		if left <= 0 {
			return nil
		}
		by, err := k.shift(ctx, left)
		if err != nil {
			return fmt.Errorf("advance: %w", err)
		}
		left -= by
	}
}

// nextSQL asks in how many microseconds the next thing is due. Steps that are due could not run. A
// time that is NULL drops out, since no comparison with it is true. $1 the calendar
func (k *Kit) nextSQL() string {
	return `SELECT (extract(epoch FROM min(g.at) - now()) * 1000000)::bigint FROM (
		SELECT eligible_at AS at FROM ` + k.instances() + ` WHERE status = 'runnable' AND NOT paused
		UNION ALL SELECT await_deadline FROM ` + k.instances() + ` WHERE status IN ('awaiting_signal', 'awaiting_children')
		UNION ALL SELECT deadline FROM ` + k.instances() + ` WHERE finished_at IS NULL
		UNION ALL SELECT closed_until FROM ` + k.gateKeys() + ` WHERE closed_until < '9999-01-01'
		UNION ALL SELECT now() + (next_at - $1::timestamptz) FROM ` + k.schedules() + ` WHERE paused_at IS NULL AND next_at > $1) g
		WHERE g.at > now()`
}

// shift moves all times nearer until the next thing is due, by at most most.
func (k *Kit) shift(ctx context.Context, most time.Duration) (by time.Duration, err error) {
	var next *int64
	if err := k.holdNow(ctx, func(b *pgx.Batch) {
		b.Queue(k.nextSQL(), k.today).QueryRow(func(row pgx.Row) error { return row.Scan(&next) })
	}); err != nil {
		return 0, err
	}
	by = most
	if next != nil {
		by = min(by, time.Duration(*next)*time.Microsecond)
	}
	if due := k.hand.NextDue(); due > 0 { // what waits for a rate has no time of its own
		by = min(by, due)
	}
	const nearer = ` - $1::bigint * interval '1 microsecond'`
	batch := &pgx.Batch{}
	for _, text := range []string{
		`UPDATE ` + k.instances() + ` SET eligible_at = eligible_at` + nearer + `, await_deadline = await_deadline` + nearer + `,
			deadline = deadline` + nearer + ` WHERE status IN ('runnable', 'awaiting_signal', 'awaiting_children')`,
		`UPDATE ` + k.windows() + ` SET opened_at = opened_at` + nearer + `, until = until` + nearer,
		`UPDATE ` + k.gateKeys() + ` SET at = at` + nearer + `, slowed_at = slowed_at` + nearer + `,
			closed_until = CASE WHEN closed_until < '9999-01-01' THEN closed_until` + nearer + ` ELSE closed_until END`,
		`UPDATE ` + k.gates() + ` SET updated_at = updated_at` + nearer, // a debt counts from before or after
		`UPDATE ` + k.kept() + ` SET expires_at = expires_at` + nearer,
	} {
		batch.Queue(text, by.Microseconds())
	}
	if err := k.Pool.SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}
	for key, until := range k.closed {
		k.closed[key] = until.Add(-by.Truncate(time.Microsecond))
	}
	k.today = k.today.Add(by)
	return by, nil
}

// ErrNoTimeout is returned by [Kit.FireTimeout] for an instance that awaits neither a signal nor
// children, or has no timeout.
var ErrNoTimeout = errors.New("durabletest: no await with a timeout")

// FireTimeout ends the await or the join of one instance as its timeout would, whenever that is:
// the instance becomes runnable, and TimedOut of its next visit is true. [Kit.Drain] runs it. No
// other time moves.
//
// It returns [ErrNoTimeout], or engine.ErrNotFound.
func (k *Kit) FireTimeout(ctx context.Context, of fsm.Target) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, err := k.Engine.Get(ctx, of)
	if err != nil {
		return err
	}
	tag, err := k.Pool.Exec(ctx, `UPDATE `+k.instances()+` SET await_deadline = clock_timestamp()
		WHERE id = $1 AND status IN ('awaiting_signal', 'awaiting_children') AND await_deadline IS NOT NULL`, int64(at.ID))
	switch {
	case err != nil:
		return fmt.Errorf("fire the timeout of instance %d: %w", at.ID, err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("%w: instance %d at step %q is %s", ErrNoTimeout, at.ID, at.Step, at.Status)
	}
	_, err = k.hand.Wake(ctx)
	return err
}
