package durabletest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/fsm"
)

// Advance drains, and then lets d pass: whatever becomes due within d runs, in the order in which it is due, and so does what follows from it.
// A timer that starts anew each time fires as often as it does in d.
//
// The clock of Postgres goes on as ever. In its place, the times of all instances that have not ended come nearer: eligible_at (delays,
// back-offs), the deadlines of awaits and those of the instances themselves, in one transaction each time. Schedules go by a calendar of
// the kit's, which begins at Config.Calendar and moves by exactly d: each occurrence of that time is fired when its turn comes. Nothing
// else moves: not inserted_at, updated_at or finished_at, so no retention passes; and not what machines have in their states, nor time.Now,
// so an absolute time (At, Until) that a step passes after an Advance is as far away as the real clock says. The few milliseconds that the
// steps themselves take come on top of d; what is due less than that apart may be taken for due at once.
//
// At most 100 years, as any delay. Errors: as of [Kit.Drain]; the limit is for all of it.
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

// shift brings all times nearer until the next one is due, by most at most.
func (k *Kit) shift(ctx context.Context, most time.Duration) (by time.Duration, err error) {
	err = pgx.BeginFunc(ctx, k.Pool, func(tx pgx.Tx) error {
		// The next is what a drain did not run, since its time has not come. No NULL: a comparison with one is not true.
		var next *int64
		row := tx.QueryRow(ctx, `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
			SELECT (extract(epoch FROM min(g.at) - min(c.now)) * 1000000)::bigint FROM c, (
				SELECT eligible_at AS at FROM `+k.instances()+` WHERE status = 'runnable' AND NOT paused
				UNION ALL SELECT await_deadline FROM `+k.instances()+` WHERE status = 'awaiting_signal'
				UNION ALL SELECT deadline FROM `+k.instances()+` WHERE finished_at IS NULL
				UNION ALL SELECT c.now + (next_at - $1::timestamptz) FROM `+k.schedules()+`, c WHERE paused_at IS NULL) g
			WHERE g.at > c.now`, k.today)
		if err := row.Scan(&next); err != nil {
			return err
		}
		by = most
		if next != nil {
			by = min(by, time.Duration(*next)*time.Microsecond)
		}
		_, err := tx.Exec(ctx, `UPDATE `+k.instances()+` SET eligible_at = eligible_at - $1::bigint * interval '1 microsecond',
				await_deadline = await_deadline - $1::bigint * interval '1 microsecond',
				deadline = deadline - $1::bigint * interval '1 microsecond'
			WHERE status IN ('runnable', 'awaiting_signal', 'awaiting_children')`, by.Microseconds())
		return err
	})
	if err == nil {
		k.today = k.today.Add(by)
	}
	return by, err
}

// ErrNoTimeout is a [Kit.FireTimeout] of an instance that awaits nothing, or without a timeout.
var ErrNoTimeout = errors.New("durabletest: no await with a timeout")

// FireTimeout ends the await of one instance as its timeout would, whenever that is: it is runnable, and its next visit says TimedOut.
// [Kit.Drain] runs it. No other time moves.
//
// Errors: [ErrNoTimeout]; engine.ErrNotFound.
func (k *Kit) FireTimeout(ctx context.Context, of fsm.Target) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, err := k.Engine.Get(ctx, of)
	if err != nil {
		return err
	}
	tag, err := k.Pool.Exec(ctx, `UPDATE `+k.instances()+` SET await_deadline = clock_timestamp()
		WHERE id = $1 AND status = 'awaiting_signal' AND await_deadline IS NOT NULL`, int64(at.ID))
	switch {
	case err != nil:
		return fmt.Errorf("fire the timeout of instance %d: %w", at.ID, err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("%w: instance %d at step %q is %s", ErrNoTimeout, at.ID, at.Step, at.Status)
	}
	_, err = k.hand.Wake(ctx)
	return err
}
