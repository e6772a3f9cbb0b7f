package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Waiting is a queue in which instances wait.
type Waiting struct {
	Queue     string
	Due       int64      // runnable, not paused, and its time has come
	Delayed   int64      // runnable, not paused, and its time has not come
	OldestDue *time.Time // nil: nothing is due
	AtLeast   bool       // more wait than were read: Due and Delayed are lower bounds
}

// Executing counts what a worker executes in a queue.
type Executing struct {
	Queue  string
	Worker string
	Count  int64
}

// Traffic says what waits and what executes, by queue.
type Traffic struct {
	At        time.Time // the server's clock
	Waiting   []Waiting // in no order
	Executing []Executing
}

// LanesText finds the queues in which instances are visible to the claims, or set aside as unknown
// to a worker, or at a step that is unknown to one: it goes from one queue to the next by the
// claims' indexes.
const LanesText = `WITH RECURSIVE c AS (SELECT clock_timestamp() AS now),
ready AS (
  (SELECT queue FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 0 ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = 0 AND g.queue > r.queue
    ORDER BY g.queue LIMIT 1) FROM ready r WHERE r.queue IS NOT NULL),
aside AS (
  (SELECT queue FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 2 ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = 2 AND g.queue > a.queue
    ORDER BY g.queue LIMIT 1) FROM aside a WHERE a.queue IS NOT NULL),
stray AS (
  (SELECT queue FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 4 ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = 4 AND g.queue > t.queue
    ORDER BY g.queue LIMIT 1) FROM stray t WHERE t.queue IS NOT NULL)`

// waitingSQL counts runnable instances, in each queue as far as $1. Those behind their partition
// key are in an index by key, which all queues share.
const waitingSQL = LanesText + `,
seen AS (
  SELECT r.queue, s.eligible_at, s.number FROM ready r, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 0 AND queue = r.queue
      ORDER BY priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT a.queue, s.eligible_at, s.number FROM aside a, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 2 AND queue = a.queue
      ORDER BY fsm, fsm_version, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT t.queue, s.eligible_at, s.number FROM stray t, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 4 AND queue = t.queue
      ORDER BY fsm, fsm_version, aside_step, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT k.queue, k.eligible_at, k.walked FROM (
    SELECT queue, eligible_at, pick_lane, count(*) OVER () AS walked FROM (
      SELECT queue, eligible_at, pick_lane FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND partition_key IS NOT NULL
      ORDER BY partition_key, queue, priority, eligible_at, id LIMIT $1) i) k WHERE k.pick_lane = 1)
SELECT queue, count(*) FILTER (WHERE eligible_at <= c.now), count(*) FILTER (WHERE eligible_at > c.now),
  min(eligible_at) FILTER (WHERE eligible_at <= c.now), bool_or(number >= $1)
FROM seen, c GROUP BY queue`

const executingSQL = `SELECT queue, coalesce(locked_by, ''), count(*) FROM {s}.gen_durable WHERE status = 'executing' GROUP BY 1, 2`

// unsortedSQL keeps the planner from sorting: only a scan of an index ends at the limit.
const unsortedSQL = `SET LOCAL enable_sort = off`

// Traffic reads what waits and what executes, of each queue and lane as far as most.
func (s *Store) Traffic(ctx context.Context, most int) (t Traffic, err error) {
	err = s.transaction(ctx, fastLock,
		s.stmt("unsorted", unsortedSQL, nil),
		s.stmt("waiting", waitingSQL, func(rows pgx.Rows) error {
			t.Waiting, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Waiting])
			return err
		}, most),
		s.stmt("executing", executingSQL, func(rows pgx.Rows) error {
			t.Executing, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Executing])
			return err
		}),
		s.stmt("now", nowSQL, func(rows pgx.Rows) error {
			t.At, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[time.Time])
			return err
		}))
	if err != nil {
		return Traffic{}, fmt.Errorf("count what waits and what executes: %w", err)
	}
	return t, nil
}
