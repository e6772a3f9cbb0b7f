package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// traffic is a queue of which anything is known: instances that wait or execute, a worker or a
// pause.
type traffic struct {
	Queue     string     `json:"queue"`
	Due       int64      `json:"due"`      // runnable, not paused, its time has come, and in no line at a gate
	Delayed   int64      `json:"delayed"`  // runnable, not paused, and its time has not come
	InLine    int64      `json:"in_line"`  // runnable, not paused, and in line at a gate
	AtLeast   bool       `json:"at_least"` // more wait than were read: due, delayed and in line are lower bounds
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

// walkSQL restricts the planner to the indexes, whatever it knows of the table: only a scan of an
// index ends at the limit.
const walkSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
  set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// traffic reads all queues, and how much each worker executes.
func (d *database) traffic(ctx context.Context) (queues map[string]*traffic, executing map[string]int64, err error) {
	load, err := d.Admin().Load(ctx)
	if err != nil {
		return nil, nil, err
	}
	queues, executing = map[string]*traffic{}, map[string]int64{}
	for _, q := range load.Queues {
		queues[q.Queue] = &traffic{Queue: q.Queue, Due: q.Due, Delayed: q.Delayed, InLine: q.InLine, AtLeast: q.AtLeast, OldestDue: absent(q.OldestDue),
			Executing: q.Executing, Workers: q.Workers, Slots: q.Slots, Since: absent(q.PausedSince)}
	}
	for _, w := range load.Workers {
		executing[w.ID] = w.Executing
	}
	return queues, executing, nil
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
	if errors.Is(err, engine.ErrBounds) {
		err = fmt.Errorf("%w\n  --count 0 leaves the counts out", err)
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
