package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type queueCommands struct {
	List   queueList   `cmd:"" help:"List the queues: what is in them, who serves them, since when they are paused."`
	Pause  queuePause  `cmd:"" help:"Keep every process from claiming from a queue."`
	Resume queueResume `cmd:"" help:"End a pause."`
}

type queueList struct{}

// queue is one of whom anything is known: a row, a worker or a pause.
type queue struct {
	Queue     string               `json:"queue"`
	Counts    map[fsm.Status]int64 `json:"counts"`
	Due       int64                `json:"due"`     // runnable, not paused, and its time has come
	Delayed   int64                `json:"delayed"` // runnable, not paused, and its time has not come
	Paused    int64                `json:"paused"`  // live instances that are paused themselves
	OldestDue *time.Time           `json:"oldest_due"`
	Workers   int                  `json:"workers"` // live ones that are not about to stop
	Slots     int                  `json:"slots"`   // of those together
	Since     *time.Time           `json:"paused_since"`
}

// queuesSQL counts in one reading of the table.
const queuesSQL = `SELECT g.queue, g.status::text, count(*),
  count(*) FILTER (WHERE g.status = 'runnable' AND NOT g.paused AND g.eligible_at <= c.now),
  count(*) FILTER (WHERE g.status = 'runnable' AND NOT g.paused AND g.eligible_at > c.now),
  count(*) FILTER (WHERE g.paused AND g.finished_at IS NULL),
  min(g.eligible_at) FILTER (WHERE g.status = 'runnable' AND NOT g.paused AND g.eligible_at <= c.now)
FROM {s}.gen_durable g, (SELECT clock_timestamp() AS now) c GROUP BY 1, 2`

// Run the command.
func (*queueList) Run(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
	if err != nil {
		return err
	}
	all, err := db.queues(ctx)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"queues": all}, func(w io.Writer) {
		t := newTable("queue", "due", "oldest", "delayed", "executing", "awaiting", "done", "failed", "workers", "slots", "paused")
		for _, q := range all {
			t.add(q.Queue, q.Due, age(at, q.OldestDue), q.Delayed, q.Counts[fsm.StatusExecuting],
				q.Counts[fsm.StatusAwaitingSignal]+q.Counts[fsm.StatusAwaitingChildren], q.Counts[fsm.StatusDone], q.Counts[fsm.StatusFailed],
				q.Workers, q.Slots, age(at, q.Since))
		}
		t.write(w, a.console.width())
	})
}

// age of what may not be.
func age(at time.Time, of *time.Time) string {
	if of == nil {
		return ""
	}
	return span(max(0, at.Sub(*of)))
}

func (d *database) queues(ctx context.Context) ([]*queue, error) {
	known := map[string]*queue{}
	get := func(name string) *queue {
		if known[name] == nil {
			known[name] = &queue{Queue: name, Counts: map[fsm.Status]int64{}}
			for _, s := range fsm.Statuses() {
				known[name].Counts[s] = 0
			}
		}
		return known[name]
	}
	rows, err := d.pool.Query(ctx, within(d.schema, queuesSQL))
	if err != nil {
		return nil, err
	}
	var name, status string
	var count, due, delayed, paused int64
	var oldest *time.Time
	_, err = pgx.ForEachRow(rows, []any{&name, &status, &count, &due, &delayed, &paused, &oldest}, func() error {
		q := get(name)
		q.Counts[fsm.Status(status)] = count
		q.Due, q.Delayed, q.Paused = q.Due+due, q.Delayed+delayed, q.Paused+paused
		if oldest != nil {
			q.OldestDue = absent(*oldest)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the queues: %w", err)
	}
	if err := d.served(ctx, get); err != nil {
		return nil, err
	}
	out := []*queue{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		out = append(out, known[name])
	}
	return out, nil
}

// served adds who serves the queues, and which are paused.
func (d *database) served(ctx context.Context, get func(string) *queue) error {
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

type queuePause struct {
	Queue string `arg:"" help:"Its name."`
}

// Run the command.
func (c *queuePause) Run(ctx context.Context, a *app, db *database) error {
	return a.pauseQueue(ctx, db, c.Queue, "paused", (*engine.Admin).PauseQueue)
}

type queueResume struct {
	Queue string `arg:"" help:"Its name."`
}

// Run the command.
func (c *queueResume) Run(ctx context.Context, a *app, db *database) error {
	return a.pauseQueue(ctx, db, c.Queue, "resumed", (*engine.Admin).ResumeQueue)
}

func (a *app) pauseQueue(ctx context.Context, db *database, name, did string, how func(*engine.Admin, context.Context, string) (bool, error)) error {
	news, err := how(db.Admin(), ctx, name)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"queue": name, "changed": news}, func(w io.Writer) {
		if news {
			fmt.Fprintf(w, "%s %q: every process knows with its next poll, a second later at most\n", did, name)
		} else {
			fmt.Fprintf(w, "%q was %s already\n", name, did)
		}
	})
}
