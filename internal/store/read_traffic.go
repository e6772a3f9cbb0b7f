package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Waiting is a queue in which instances wait.
type Waiting struct {
	Queue     string     `json:"queue"`
	Due       int64      `json:"due"`      // runnable, not paused, its time has come, and in no line at a gate
	Delayed   int64      `json:"delayed"`  // runnable, not paused, and its time has not come
	InLine    int64      `json:"in_line"`  // runnable, not paused, and in line at a gate
	OldestDue *time.Time `json:"oldest"`   // nil: nothing is due
	AtLeast   bool       `json:"at_least"` // more wait than were read: Due, Delayed and InLine are lower bounds
}

// Executing counts what a worker executes in a queue.
type Executing struct {
	Queue  string `json:"queue"`
	Worker string `json:"worker"`
	Count  int64  `json:"count"`
}

// Present is a worker that has registered, with the columns of the table workers.
type Present struct {
	ID        string         `json:"id"`
	Host      string         `json:"host"`
	PID       int            `json:"pid"`
	Version   string         `json:"version"`
	Queues    map[string]int `json:"queues"`
	Machines  []string       `json:"machines"`
	Draining  bool           `json:"draining"`
	StartedAt time.Time      `json:"started_at"`
	BeatAt    time.Time      `json:"beat_at"`
	ExpiresAt time.Time      `json:"expires_at"`
}

// Traffic has the waiting and executing instances by queue, and the workers.
type Traffic struct {
	At        time.Time // the server's clock
	Waiting   []Waiting // in no order
	Executing []Executing
	Workers   []Present            // by when they started
	Paused    map[string]time.Time // since when each paused queue is paused
}

// LanesText finds the queues in which instances are visible to the claims, or set aside as unknown
// to a worker, or at a step that is unknown to one: it goes from one queue to the next by the
// claims' indexes.
const LanesText = `WITH RECURSIVE c AS (SELECT clock_timestamp() AS now),
ready AS (
  (SELECT queue FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane front} ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane front} AND g.queue > r.queue
    ORDER BY g.queue LIMIT 1) FROM ready r WHERE r.queue IS NOT NULL),
aside AS (
  (SELECT queue FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane aside} ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane aside} AND g.queue > a.queue
    ORDER BY g.queue LIMIT 1) FROM aside a WHERE a.queue IS NOT NULL),
stray AS (
  (SELECT queue FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane stray} ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane stray} AND g.queue > t.queue
    ORDER BY g.queue LIMIT 1) FROM stray t WHERE t.queue IS NOT NULL)`

// trafficSQL counts runnable instances, in each queue as far as $1, and executing ones. Those
// behind their partition key are in an index by key, which all queues share. Workers and pauses
// come with it, so that the whole is one statement and one moment.
var trafficSQL = named("traffic", LanesText+`,
lined AS (
  (SELECT queue FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane line} ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM {s}.gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane line} AND g.queue > l.queue
    ORDER BY g.queue LIMIT 1) FROM lined l WHERE l.queue IS NOT NULL),
seen(queue, eligible_at, number, in_line) AS (
  SELECT r.queue, s.eligible_at, s.number, false FROM ready r, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane front} AND queue = r.queue
      ORDER BY priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT a.queue, s.eligible_at, s.number, false FROM aside a, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane aside} AND queue = a.queue
      ORDER BY fsm, fsm_version, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT t.queue, s.eligible_at, s.number, false FROM stray t, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane stray} AND queue = t.queue
      ORDER BY fsm, fsm_version, aside_step, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT l.queue, s.eligible_at, s.number, true FROM lined l, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = {lane line} AND queue = l.queue
      ORDER BY gate USING ~<~, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT k.queue, k.eligible_at, k.walked, false FROM (
    SELECT queue, eligible_at, pick_lane, count(*) OVER () AS walked FROM (
      SELECT queue, eligible_at, pick_lane FROM {s}.gen_durable WHERE status = 'runnable' AND NOT paused AND partition_key IS NOT NULL
      ORDER BY partition_key, queue, priority, eligible_at, id LIMIT $1) i) k WHERE k.pick_lane = {lane key})
SELECT c.now,
  (SELECT coalesce(jsonb_agg(to_jsonb(q)), '[]')::text FROM (
    SELECT queue, count(*) FILTER (WHERE eligible_at <= c.now AND NOT in_line) AS due, count(*) FILTER (WHERE eligible_at > c.now AND NOT in_line) AS delayed,
      count(*) FILTER (WHERE in_line) AS in_line, min(eligible_at) FILTER (WHERE eligible_at <= c.now AND NOT in_line) AS oldest, bool_or(number >= $1) AS at_least
    FROM seen GROUP BY queue) q),
  (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]')::text FROM (
    SELECT queue, coalesce(locked_by, '') AS worker, count(*) AS count FROM {s}.gen_durable WHERE status = 'executing' GROUP BY 1, 2) x),
  (SELECT coalesce(jsonb_agg(to_jsonb(w) ORDER BY w.started_at, w.id), '[]')::text FROM {s}.workers w),
  (SELECT coalesce(jsonb_object_agg(p.queue, p.paused_at), '{}')::text FROM {s}.paused_queues p)
FROM c`)

// unsortedSQL keeps the planner from sorting: only a scan of an index ends at the limit.
var unsortedSQL = named("unsorted", `SET LOCAL enable_sort = off`)

// Traffic reads the waiting and executing instances, of each queue and lane as far as most, and
// the workers.
func (s *Store) Traffic(ctx context.Context, most int) (t Traffic, err error) {
	var parts [4]string
	err = s.transaction(ctx, fastLock,
		s.stmt(unsortedSQL, nil),
		s.stmt(trafficSQL, func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&t.At, &parts[0], &parts[1], &parts[2], &parts[3]}, func() error { return nil })
			return err
		}, most))
	for n, into := range []any{&t.Waiting, &t.Executing, &t.Workers, &t.Paused} {
		if err == nil {
			err = json.Unmarshal([]byte(parts[n]), into)
		}
	}
	if err != nil {
		return Traffic{}, fmt.Errorf("count waiting and executing instances: %w", err)
	}
	return t, nil
}
