package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// traffic is a queue of which anything is known: instances that wait or execute, a worker or a
// pause.
type traffic struct {
	Queue     string     `json:"queue"`
	Due       int64      `json:"due"`      // runnable, not paused, and its time has come
	Delayed   int64      `json:"delayed"`  // runnable, not paused, and its time has not come
	AtLeast   bool       `json:"at_least"` // more wait than were read: due and delayed are lower bounds
	OldestDue *time.Time `json:"oldest_due"`
	Executing int64      `json:"executing"`
	Workers   int        `json:"workers"` // live ones that are not about to stop
	Slots     int        `json:"slots"`   // of these workers together
	Since     *time.Time `json:"paused_since"`
}

// waiting returns a number of waiting instances as text.
func (t *traffic) waiting(n int64) string {
	if t.AtLeast && n > 0 {
		return fmt.Sprintf("%d+", n)
	}
	return strconv.FormatInt(n, 10)
}

// waitingMost is how many waiting instances are read, of each queue and lane.
const waitingMost = 10_000

// walkSQL restricts the planner to the indexes, whatever it knows of the table: only a scan of an
// index ends at the limit.
const walkSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
  set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// lanesSQL finds the queues in which instances are visible to the claims, or set aside as unknown
// to a worker, or at a step that is unknown to one: it goes from one queue to the next by the
// claims' indexes.
const lanesSQL = `WITH RECURSIVE c AS (SELECT clock_timestamp() AS now),
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
const waitingSQL = lanesSQL + `,
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

const executingSQL = `SELECT queue, locked_by, count(*) FROM {s}.gen_durable WHERE status = 'executing' GROUP BY 1, 2`

// traffic reads all queues, and how much each worker executes.
func (d *database) traffic(ctx context.Context) (queues map[string]*traffic, executing map[string]int64, err error) {
	queues, executing = map[string]*traffic{}, map[string]int64{}
	get := func(name string) *traffic {
		if queues[name] == nil {
			queues[name] = &traffic{Queue: name}
		}
		return queues[name]
	}
	err = pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, walkSQL); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, within(d.schema, waitingSQL), waitingMost)
		if err != nil {
			return err
		}
		var seen traffic
		if _, err := pgx.ForEachRow(rows, []any{&seen.Queue, &seen.Due, &seen.Delayed, &seen.OldestDue, &seen.AtLeast}, func() error {
			q := get(seen.Queue)
			q.Due, q.Delayed, q.OldestDue, q.AtLeast = seen.Due, seen.Delayed, absent(value(seen.OldestDue)), seen.AtLeast
			return nil
		}); err != nil {
			return fmt.Errorf("count what waits: %w", err)
		}
		if rows, err = tx.Query(ctx, within(d.schema, executingSQL)); err != nil {
			return err
		}
		var name, worker string
		var count int64
		if _, err := pgx.ForEachRow(rows, []any{&name, &worker, &count}, func() error {
			get(name).Executing += count
			executing[worker] += count
			return nil
		}); err != nil {
			return fmt.Errorf("count what executes: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return queues, executing, d.served(ctx, get)
}

// served adds the queues' workers and pauses.
func (d *database) served(ctx context.Context, get func(string) *traffic) error {
	workers, err := d.Admin().Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range workers {
		if !w.Live || w.Draining {
			continue
		}
		for name, slots := range w.Queues {
			q := get(name)
			q.Workers, q.Slots = q.Workers+1, q.Slots+slots
		}
	}
	stopped, err := d.Admin().PausedQueues(ctx)
	if err != nil {
		return err
	}
	for _, p := range stopped {
		get(p.Queue).Since = absent(p.Since)
	}
	return nil
}

// counting is the part of a command that reads the whole table.
type counting struct {
	Count time.Duration `default:"5s" help:"How long the server may take to count all instances by status, which reads the whole table; 0: no counts."`
}

// countMost is the longest that the engine lets a count take.
const countMost = 10 * time.Minute

// Validate checks the value.
func (c *counting) Validate() error {
	if c.Count != 0 && (c.Count < time.Millisecond || c.Count > countMost) {
		return fmt.Errorf("--count: %v, 1ms to %v, or 0", c.Count, countMost)
	}
	return nil
}

// counted says when a count began and how long it took. It is null if there is none, or if it was
// cut off.
type counted struct {
	At      time.Time `json:"at"` // this machine's clock
	Seconds float64   `json:"seconds"`
}

// all counts all instances. It returns none if the count was cut off.
func (c *counting) all(ctx context.Context, db *database) ([]engine.Count, *counted, error) {
	if c.Count == 0 {
		return nil, nil, nil
	}
	counts, err := db.Counts(ctx, engine.CountsOptions{Timeout: c.Count})
	if errors.Is(err, engine.ErrCounts) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return counts.Counts, &counted{counts.At.UTC(), counts.Took.Seconds()}, nil
}

// write says how old the counts are, or why there are none.
func (c *counting) write(w io.Writer, counts *counted) {
	switch {
	case counts != nil:
		fmt.Fprintf(w, "counted at %s, in %s\n", text(counts.At), span(time.Duration(counts.Seconds*float64(time.Second))))
	case c.Count > 0:
		fmt.Fprintf(w, "not counted by status: that reads the whole table, and was cut off after %v; --count %v gives it longer\n", c.Count, 10*c.Count)
	}
}

// zeros returns counts by status that mention each status.
func zeros() map[fsm.Status]int64 {
	out := map[fsm.Status]int64{}
	for _, s := range fsm.Statuses() {
		out[s] = 0
	}
	return out
}
