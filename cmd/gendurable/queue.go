package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type queueCommands struct {
	List   queueList   `cmd:"" help:"List the queues: their instances, their workers, since when they are paused."`
	Pause  queuePause  `cmd:"" help:"Pause a queue: no process claims from it."`
	Resume queueResume `cmd:"" help:"End a pause."`
}

type queueList struct {
	counting
}

// queue is a queue with its instances. Counts are null if they were not made.
type queue struct {
	traffic

	Counts map[fsm.Status]int64 `json:"counts"`
}

// queues lists all queues.
type queues struct {
	Queues  []*queue `json:"queues"`
	Counted *counted `json:"counted"`
}

// Run runs the command.
func (c *queueList) Run(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
	if err != nil {
		return err
	}
	known, _, err := db.traffic(ctx)
	if err != nil {
		return err
	}
	counts, counted, err := c.all(ctx, db)
	if err != nil {
		return err
	}
	all := map[string]*queue{}
	get := func(name string) *queue {
		if all[name] == nil {
			all[name] = &queue{traffic: traffic{Queue: name}}
			if counted != nil {
				all[name].Counts = zeros()
			}
		}
		return all[name]
	}
	for name, q := range known {
		get(name).traffic = *q
	}
	for _, c := range counts {
		get(c.Queue).Counts[c.Status] += c.Count
	}
	out := queues{[]*queue{}, counted}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out.Queues = append(out.Queues, all[name])
	}
	return a.show(out, func(w io.Writer) {
		out.write(w, at, a.console.width())
		c.write(w, counted)
	})
}

func (q *queues) write(w io.Writer, at time.Time, width int) {
	head := []string{"queue", "due", "oldest", "delayed", "in line", "executing", "slots", "workers"}
	if q.Counted != nil {
		head = append(head, "awaiting", "done", "failed")
	}
	t := newTable(append(head, "paused")...)
	for _, one := range q.Queues {
		row := []any{one.Queue, one.waiting(one.Due), age(at, one.OldestDue), one.waiting(one.Delayed), one.waiting(one.InLine), one.Executing, one.Slots, one.Workers}
		if q.Counted != nil {
			row = append(row, one.Counts[fsm.StatusAwaitingSignal]+one.Counts[fsm.StatusAwaitingChildren], one.Counts[fsm.StatusDone],
				one.Counts[fsm.StatusFailed])
		}
		t.add(append(row, age(at, one.Since))...)
	}
	t.write(w, width)
}

// age returns the time since of as text; "" if of is nil.
func age(at time.Time, of *time.Time) string {
	if of == nil {
		return ""
	}
	return span(max(0, at.Sub(*of)))
}

type queuePause struct {
	Queue string `arg:"" help:"The name of the queue."`
}

// Run runs the command.
func (c *queuePause) Run(ctx context.Context, a *app, db *database) error {
	return a.pauseQueue(ctx, db, c.Queue, "paused", (*engine.Admin).PauseQueue)
}

type queueResume struct {
	Queue string `arg:"" help:"The name of the queue."`
}

// Run runs the command.
func (c *queueResume) Run(ctx context.Context, a *app, db *database) error {
	return a.pauseQueue(ctx, db, c.Queue, "resumed", (*engine.Admin).ResumeQueue)
}

func (a *app) pauseQueue(ctx context.Context, db *database, name, did string, how func(*engine.Admin, context.Context, string, ...engine.VerbOption) (bool, error)) error {
	news, err := how(db.Admin(), ctx, name)
	if err != nil {
		return err
	}
	q := &traffic{}
	if db.bound() { // to queues, of which this is one
		known, _, err := db.traffic(ctx)
		if err != nil {
			return err
		}
		q = cmp.Or(known[name], q)
	} else if err := db.served(ctx, func(served string) *traffic {
		if served == name {
			return q
		}
		return &traffic{}
	}); err != nil {
		return err
	}
	return a.show(map[string]any{"queue": name, "changed": news, "workers": q.Workers}, func(w io.Writer) {
		if q.Workers == 0 {
			defer fmt.Fprintf(w, "no live worker serves a queue of this name\n")
		}
		if news {
			fmt.Fprintf(w, "%s %q: every process knows with its next poll, a second later at most\n", did, name)
		} else {
			fmt.Fprintf(w, "%q was %s already\n", name, did)
		}
	})
}
