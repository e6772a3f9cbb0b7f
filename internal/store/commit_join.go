package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/step"
)

// policySQL notes what wakes parents before all of their children have ended. It follows the update
// that parked them, in its transaction, so that commits without such parents are what they were.
//
// The policy counts while join_round = round. So a later round without a policy, also one of a
// process that knows nothing of policies, ends this one by moving round. awaits and await_deadline
// are those of an Await: whatever delivers signals or looks for timeouts wakes such a parent, too,
// and recheckSQL looks for signals that were there before.
//
// $1 ids $2 mark $3 $4 $5 how many that are done, that failed, that have ended, wake it; NULL: none
// $6 timeout, µs $7 time $8, $9 slice of $10 names $11 whether the rest is cancelled then
const policySQL = `UPDATE {s}.gen_durable g SET join_round = g.round, join_size = g.children_pending, join_done = 0, join_failed = 0,
  wake_done = u.done, wake_failed = u.failed, wake_ended = u.ended, awaits = ($10::text[])[u.lo:u.hi],
  losers = CASE WHEN u.cancels THEN array_append(g.losers, g.round) ELSE g.losers END,
  await_deadline = CASE WHEN u.at IS NOT NULL THEN u.at
    WHEN u.us IS NOT NULL THEN (SELECT clock_timestamp()) + u.us * interval '1 microsecond' END
FROM (SELECT unnest($1::bigint[]) AS id, unnest($3::int[]) AS done, unnest($4::int[]) AS failed, unnest($5::int[]) AS ended,
  unnest($6::bigint[]) AS us, unnest($7::timestamptz[]) AS at, unnest($8::int[]) AS lo, unnest($9::int[]) AS hi, unnest($11::boolean[]) AS cancels) u
WHERE g.id = u.id AND g.commit_id = $2::uuid`

// joinWakes is the condition that the ends of d wake the parent x: all children are in; or the
// policy's number of them is done, or never will be; or enough of them have failed, or ended.
//
// A process of a release that knows no policies lowers children_pending alone when it ends a child.
// Then the counts do not add up, and the policy decides nothing here until Recount has counted the
// children.
const joinWakes = `(x.children_pending <= d.n
      OR coalesce(x.join_round = x.round AND x.join_size - x.children_pending = x.join_done + x.join_failed AND (
        x.join_done + d.ok >= x.wake_done OR x.join_done + d.ok + x.children_pending - d.n < x.wake_done
        OR x.join_failed + d.n - d.ok >= x.wake_failed OR x.join_size - x.children_pending + d.n >= x.wake_ended), false))`

// policies holds the policies of joins.
type policies struct {
	ids                 []int64
	done, failed, ended []*int32
	micros              []*int64
	times               []*time.Time
	lo, hi              []*int32
	names               []string
	cancels             []bool
}

// policed reports whether the outcome parks its instance under a policy.
func (e *Entry) policed() bool { return e.Commit.Join != nil && len(e.Commit.Spawn) > 0 }

func (p *policies) add(c *step.Claim, j *step.Join) {
	p.ids = append(p.ids, c.ID)
	p.done, p.failed, p.ended = append(p.done, positive(j.Done)), append(p.failed, positive(j.Failed)), append(p.ended, positive(j.Ended))
	var us *int64
	if j.Timeout > 0 {
		us = new(micros(j.Timeout))
	}
	var at *time.Time
	if !j.At.IsZero() {
		at = &j.At
	}
	p.micros, p.times = append(p.micros, us), append(p.times, at)
	var lo, hi *int32
	if len(j.Names) > 0 {
		lo, hi = positive(len(p.names)+1), positive(len(p.names)+len(j.Names))
		p.names = append(p.names, j.Names...)
	}
	p.lo, p.hi, p.cancels = append(p.lo, lo), append(p.hi, hi), append(p.cancels, j.Cancel)
}

// positive returns nil for 0.
func positive(n int) *int32 {
	if n == 0 {
		return nil
	}
	return new(int32(n)) //nolint:gosec // bounded by the limits
}

// uncountedSQL locks parked parents that another release may have left asleep. That release has
// ended a child without counting it for the policy, or delivered a signal that it did not know to
// wake the parent. $1 behind this id $2 most rows
const uncountedSQL = `SELECT x.id, x.round FROM {s}.gen_durable x
WHERE x.join_round IS NOT NULL AND x.status = 'awaiting_children' AND x.id > $1 AND x.join_round = x.round
  AND (x.join_size - x.children_pending <> x.join_done + x.join_failed
    OR (SELECT true FROM {s}.signals s WHERE s.target_id = x.id AND s.name = ANY(x.awaits) AND s.consumed_at IS NULL LIMIT 1))
ORDER BY x.id LIMIT $2 FOR NO KEY UPDATE OF x SKIP LOCKED`

// recountSQL counts the children of such parents anew, and wakes those whose condition is true. It
// is a statement of its own after the lock: whoever ends a child locks its parent first, so each
// such commit is either in this snapshot, or will find the row as it is left here. children_pending
// is right, since every release lowers it. The GC deletes no child of a round that has not joined.
// $1 ids $2 rounds
const recountSQL = `UPDATE {s}.gen_durable p SET join_done = c.done, join_failed = p.join_size - p.children_pending - c.done,
  status = CASE WHEN ` + recountWakes + ` THEN 'runnable' ELSE p.status END,
  eligible_at = CASE WHEN ` + recountWakes + ` THEN (SELECT clock_timestamp()) ELSE p.eligible_at END,
  updated_at = CASE WHEN ` + recountWakes + ` THEN (SELECT clock_timestamp()) ELSE p.updated_at END,
  await_deadline = CASE WHEN ` + recountWakes + ` THEN NULL ELSE p.await_deadline END
FROM (SELECT u.id, (SELECT count(*)::int FROM {s}.gen_durable k
    WHERE k.parent_id = u.id AND k.parent_round = u.round AND k.joined IS NOT NULL AND k.status = 'done') AS done,
  (SELECT true FROM {s}.signals s WHERE s.target_id = u.id AND s.consumed_at IS NULL
    AND s.name = ANY((SELECT x.awaits FROM {s}.gen_durable x WHERE x.id = u.id)::text[]) LIMIT 1) AS signalled
  FROM unnest($1::bigint[], $2::bigint[]) AS u(id, round)) c
WHERE p.id = c.id
RETURNING p.queue, p.status = 'runnable'`

const recountWakes = `coalesce(c.signalled, false) OR coalesce(c.done >= p.wake_done OR c.done + p.children_pending < p.wake_done
    OR p.join_size - p.children_pending - c.done >= p.wake_failed OR p.join_size - p.children_pending >= p.wake_ended, false)`

// Recounted reports what one slice of Recount did.
type Recounted struct {
	Last   int64    // the last parent it looked at; 0: there are none behind it
	Queues []string // of the parents that it woke, with repeats
}

// Recount looks at up to limit parked parents behind an id that a process of the release before may
// have left asleep: see uncountedSQL. It passes by those that somebody has locked.
func (s *Store) Recount(ctx context.Context, after int64, limit int) (out Recounted, err error) {
	err = s.interactive(ctx, fastLock, func(send send) error {
		out = Recounted{}
		var ids, rounds []int64
		if err := send(s.stmt("uncounted", uncountedSQL, func(rows pgx.Rows) error {
			var id, round int64
			_, err := pgx.ForEachRow(rows, []any{&id, &round}, func() error {
				ids, rounds = append(ids, id), append(rounds, round)
				return nil
			})
			return err
		}, after, limit)); err != nil || len(ids) == 0 {
			return err
		}
		if len(ids) == limit {
			out.Last = ids[len(ids)-1]
		}
		return send(s.stmt("recount", recountSQL, func(rows pgx.Rows) error {
			var queue string
			var woken bool
			_, err := pgx.ForEachRow(rows, []any{&queue, &woken}, func() error {
				if woken {
					out.Queues = append(out.Queues, queue)
				}
				return nil
			})
			return err
		}, ids, rounds))
	})
	if err != nil {
		return Recounted{}, fmt.Errorf("count the children of parents that may have been left asleep: %w", err)
	}
	return out, nil
}
