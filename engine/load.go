package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

// MaxLoad is how many waiting instances of a queue [Admin.Load] counts.
const MaxLoad = 10_000

// Load has the waiting and executing instances, and the workers.
type Load struct {
	At      time.Time    `json:"at"`      // the server's clock
	Queues  []QueueLoad  `json:"queues"`  // of which anything is known, by name
	Workers []WorkerLoad `json:"workers"` // as Admin.Workers lists them
}

// QueueLoad is a queue in which instances wait or execute, that a live worker serves, or that is
// paused.
type QueueLoad struct {
	Queue       string    `json:"queue"`
	Due         int64     `json:"due"`                 // runnable, not paused, its time has come, and in no line at a gate
	Delayed     int64     `json:"delayed"`             // runnable, not paused, and its time has not come
	InLine      int64     `json:"in_line"`             // runnable, not paused, and in line at a gate that lets no more begin: see Admin.Gates
	AtLeast     bool      `json:"at_least"`            // over MaxLoad wait: Due, Delayed and InLine are lower bounds
	OldestDue   time.Time `json:"oldest_due,omitzero"` // since when the oldest due instance is due, of those that were counted
	Executing   int64     `json:"executing"`
	Workers     int       `json:"workers"`               // live ones that are not about to stop
	Slots       int       `json:"slots"`                 // of these workers together
	PausedSince time.Time `json:"paused_since,omitzero"` // zero: it is not paused
}

// WorkerLoad is a worker, and how much it does.
type WorkerLoad struct {
	Worker

	Executing int64 `json:"executing"` // instances
	Slots     int   `json:"slots"`     // how many it can execute at once, in all of its queues
}

// Load returns the load of all queues and workers. It finds due and delayed instances by the
// indexes that the claims use, up to MaxLoad of each queue, so it reads no whole table; the number
// of executing ones is exact. It is one statement. It does not see what is parked or has ended,
// nor what an operator has paused: [Engine.Counts] does. Bounds have to be of queues alone, and
// then it lists no workers.
func (a *Admin) Load(ctx context.Context) (load Load, err error) {
	defer a.engine.explain(ctx, toRead("gen_durable", "workers", "paused_queues"), &err)
	if err := a.byQueue("Load"); err != nil {
		return Load{}, err
	}
	var seen store.Traffic
	err = a.engine.patiently(ctx, task{doing: "look at the load"}, func() error {
		seen, err = a.engine.store.Traffic(ctx, MaxLoad)
		return err
	})
	if err != nil {
		return Load{}, err
	}
	load = loadOf(&seen)
	if a.bound() {
		load.Workers = []WorkerLoad{}
		load.Queues = slices.DeleteFunc(load.Queues, func(q QueueLoad) bool { return !a.sees(q.Queue, "") })
	}
	return load, nil
}

func loadOf(seen *store.Traffic) Load {
	load := Load{At: seen.At.UTC(), Queues: []QueueLoad{}, Workers: make([]WorkerLoad, len(seen.Workers))}
	known, executing := map[string]*QueueLoad{}, map[string]int64{}
	get := func(name string) *QueueLoad {
		if known[name] == nil {
			known[name] = &QueueLoad{Queue: name}
		}
		return known[name]
	}
	for _, w := range seen.Waiting {
		q := get(w.Queue)
		q.Due, q.Delayed, q.InLine, q.AtLeast, q.OldestDue = w.Due, w.Delayed, w.InLine, w.AtLeast, fieldOf(w.OldestDue).UTC()
	}
	for _, x := range seen.Executing {
		get(x.Queue).Executing += x.Count
		executing[x.Worker] += x.Count
	}
	for i := range seen.Workers {
		w := presentWorker(&seen.Workers[i], seen.At)
		load.Workers[i] = WorkerLoad{Worker: w, Executing: executing[w.ID]}
		for name, slots := range w.Queues {
			load.Workers[i].Slots += slots
			if w.Live && !w.Draining {
				q := get(name)
				q.Workers, q.Slots = q.Workers+1, q.Slots+slots
			}
		}
	}
	for queue, since := range seen.Paused {
		get(queue).PausedSince = since.UTC()
	}
	for _, q := range known {
		load.Queues = append(load.Queues, *q)
	}
	slices.SortFunc(load.Queues, func(a, b QueueLoad) int { return strings.Compare(a.Queue, b.Queue) })
	return load
}
