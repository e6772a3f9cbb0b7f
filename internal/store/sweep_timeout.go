package store

import (
	"context"
	"fmt"
)

// timedOutText selects the rows that timeoutSQL wakes.
const timedOutText = `x.await_deadline <= (SELECT now FROM c) AND coalesce(x.status IN ('awaiting_signal', 'awaiting_children'), false)`

var (
	timeoutSQL      = named("await timeout", sweepForm{}.timeout())
	timeoutTheseSQL = named("await timeout", sweepForm{these: true}.timeout(), "these")
)

// timeout wakes instances whose await, or whose join, has timed out, with the signals that have
// arrived. awaits stays, so that a signal that arrives between this and the claim is still awaited.
// $1 most rows $2 ids
func (f sweepForm) timeout() string {
	return `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
due AS MATERIALIZED (
  SELECT x.ctid AS tid FROM {s}.gen_durable x
  WHERE ` + timedOutText + ` AND ` + f.among("$2") + `
  ` + f.order("x.await_deadline") + ` LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {s}.gen_durable g SET status = 'runnable', eligible_at = (SELECT now FROM c), pick_lane = {lane front}, await_deadline = NULL, timed_out = true,
  updated_at = (SELECT now FROM c)
FROM due WHERE g.ctid = due.tid
RETURNING g.queue`
}

// TimedOut reports what a sweep of awaits did.
type TimedOut struct {
	Queues  []string // the queues of the instances that it woke, with repeats
	Refused []Refused
}

// TimeOut wakes up to limit instances whose await has timed out. Rows that Postgres refuses to
// change do not keep it from waking the others (T22).
func (s *Store) TimeOut(ctx context.Context, limit int) (out TimedOut, err error) {
	pass := s.apart.timeout.ids()
	if err = s.timeOut(ctx, &out, timeoutSQL, limit, pass); !holdsUp(err) {
		return out, err
	}
	var ids []int64
	if err = s.one(ctx, fastLock, timedOutSQL, readIDs(&ids), limit, pass); err != nil {
		return out, fmt.Errorf("list awaits past their timeout: %w", err)
	}
	out.Refused, err = narrow(ids, func(ids []int64) error {
		return s.timeOut(ctx, &out, timeoutTheseSQL, len(ids), ids)
	}, ofID)
	s.apart.timeout.add(out.Refused)
	return out, err
}

func (s *Store) timeOut(ctx context.Context, out *TimedOut, text *statement, limit int, ids []int64) error {
	var queues []string
	if err := s.one(ctx, fastLock, text, readQueues(&queues), limit, ids); err != nil {
		return fmt.Errorf("end awaits past their timeout: %w", err)
	}
	out.Queues = append(out.Queues, queues...)
	return nil
}

// timedOutSQL lists the rows that timeoutSQL would wake. $1 most rows $2 ids to pass over
var timedOutSQL = named("timed out", `WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT x.id FROM {s}.gen_durable x WHERE `+timedOutText+` AND x.id <> ALL($2::bigint[]) ORDER BY x.await_deadline LIMIT $1`)
