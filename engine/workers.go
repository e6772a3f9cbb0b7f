package engine

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/ent/worker"
)

// Worker is a process that works on queues. It registers when it starts, with each heartbeat, and
// until it stops.
type Worker struct {
	ID       string         `json:"id"` // as in locked_by of the instances that it executes
	Host     string         `json:"host"`
	PID      int            `json:"pid"`
	Version  string         `json:"version,omitempty"` // of the program's main module: its path and what go build knew
	Queues   map[string]int `json:"queues"`            // and how many of their steps run at once
	Machines []string       `json:"machines"`          // that it can run, as name/version
	Draining bool           `json:"draining"`          // it was about to stop when it last said something
	Started  time.Time      `json:"started"`
	Beat     time.Time      `json:"beat"` // when it last said something
	Live     bool           `json:"live"` // and that was no longer ago than three of its heartbeats
}

// Workers lists the processes that work on queues, oldest first. One that died stays listed for an
// hour, without Live. Engines without queues are not listed.
func (a *Admin) Workers(ctx context.Context) (all []Worker, err error) {
	defer a.engine.explain(ctx, toRead("workers"), &err)
	if err := a.whole("Workers"); err != nil {
		return nil, err
	}
	var rows []*ent.Worker
	var now time.Time
	err = a.engine.patiently(ctx, task{doing: "list workers"}, func() error {
		if rows, err = a.engine.Ent().Worker.Query().Order(worker.ByStartedAt(), worker.ByID()).All(ctx); err != nil {
			return err
		}
		now, err = a.engine.store.Now(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	all = make([]Worker, len(rows))
	for i, r := range rows {
		all[i] = workerOf(r, now)
	}
	return all, nil
}

func workerOf(r *ent.Worker, now time.Time) Worker {
	return Worker{ID: r.ID.String(), Host: r.Host, PID: int(r.Pid), Version: r.Version, Queues: r.Queues, Machines: r.Machines,
		Draining: r.Draining, Started: r.StartedAt, Beat: r.BeatAt, Live: now.Before(r.ExpiresAt)}
}
