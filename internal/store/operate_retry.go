package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// retrySQL makes failed instances runnable at the step in which they failed, never parked again.
// That step sees the same as before: visit, and so its idempotency keys, awaits, timed_out,
// round and inbox are unchanged. The statement resets only columns that would fail the instance
// at once or hold it back: attempt, crashes, eligible_at, paused, and a deadline that is past.
// The place that it had at a gate for whole runs may be another's since. joined stays, so that a
// child that was counted at its parent's barrier is not counted again (T42).
//
// The instance occupies its correlation key again. The unique index refuses that if another
// instance has the key (T56). $1 ids
var retrySQL = named("retry", `UPDATE {s}.gen_durable g SET status = 'runnable', failure = NULL, finished_at = NULL, paused = false, pick_lane = {lane front}, run_gate = NULL, run_place = NULL,
  attempt = 0, crashes = 0, deadline = CASE WHEN g.deadline > (SELECT clock_timestamp()) THEN g.deadline END,
  eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'failed', false)
RETURNING g.id`)

// occupantOfSQL finds an instance that occupies the correlation key of one of the given, or one of
// these that would occupy another's key. $1 ids
var occupantOfSQL = named("occupant of", `(SELECT o.correlation_guard, o.id FROM {s}.gen_durable g
CROSS JOIN LATERAL (SELECT x.correlation_guard, x.id FROM {s}.gen_durable x WHERE x.correlation_guard = g.correlation_key OFFSET 0) o
WHERE g.id = ANY($1::bigint[]) AND o.id <> g.id LIMIT 1)
UNION ALL
(SELECT g.correlation_key, min(g.id) FROM {s}.gen_durable g
WHERE g.id = ANY($1::bigint[]) AND 'runnable' = ANY(g.correlation_scope) GROUP BY g.correlation_key HAVING count(*) > 1 LIMIT 1)
LIMIT 1`)

// occupied returns an *OccupiedError for instances of which one could not be retried. If no
// instance occupies its key any more, it returns refused.
func (s *Store) occupied(ctx context.Context, ids []int64, refused error) error {
	var by OccupiedError
	err := s.one(ctx, fastLock, occupantOfSQL, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&by.Key, &by.Occupant}, func() error { return nil })
		return err
	}, ids)
	switch {
	case err != nil:
		return err
	case by.Occupant == 0:
		return refused
	}
	return &by
}
