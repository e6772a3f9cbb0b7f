package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type workerCommands struct {
	List workerList `cmd:"" help:"List the processes that work on queues; those that died, for an hour."`
}

type workerList struct{}

// process is a worker.
type process struct {
	ID       string         `json:"id"`
	State    string         `json:"state"` // live, draining or dead
	Host     string         `json:"host"`
	PID      int            `json:"pid"`
	Version  string         `json:"version"`
	Queues   map[string]int `json:"queues"`
	Machines []string       `json:"machines"`
	Started  time.Time      `json:"started_at"`
	Beat     time.Time      `json:"beat_at"`
}

func processes(of []engine.Worker) []process {
	out := make([]process, len(of))
	for n, w := range of {
		out[n] = process{w.ID, "live", w.Host, w.PID, w.Version, w.Queues, some(w.Machines), w.Started.UTC(), w.Beat.UTC()}
		switch {
		case !w.Live:
			out[n].State = "dead"
		case w.Draining:
			out[n].State = "draining"
		}
	}
	return out
}

// Run the command.
func (*workerList) Run(ctx context.Context, a *app) error {
	db, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	workers, err := db.Admin().Workers(ctx)
	if err != nil {
		return err
	}
	at, err := now(ctx, db.pool)
	if err != nil {
		return err
	}
	out := processes(workers)
	return a.show(map[string]any{"workers": out}, func(w io.Writer) {
		t := newTable("id", "state", "host", "pid", "up", "beat", "queues", "machines", "program")
		for _, one := range out {
			t.add(one.ID, one.State, one.Host, one.PID, at.Sub(one.Started), max(0, at.Sub(one.Beat)), slots(one.Queues), one.Machines, one.Version)
		}
		t.write(w, a.console.width())
	})
}

func slots(queues map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		out = append(out, fmt.Sprintf("%s:%d", name, queues[name]))
	}
	return strings.Join(out, " ")
}

type machineCommands struct {
	List machineList `cmd:"" help:"List the machines that instances are of or workers register."`
}

type machineList struct{}

// machine is one version of one.
type machine struct {
	Machine string               `json:"machine"`
	Version int                  `json:"version"`
	Workers int                  `json:"workers"` // live ones that are not about to stop
	Counts  map[fsm.Status]int64 `json:"counts"`
}

// Run the command.
func (*machineList) Run(ctx context.Context, a *app) error {
	db, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	out, err := db.machines(ctx, a.Timeout)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"machines": out}, func(w io.Writer) {
		t := newTable("machine", "version", "workers", "runnable", "executing", "awaiting", "done", "failed")
		for _, m := range out {
			t.add(m.Machine, m.Version, m.Workers, m.Counts[fsm.StatusRunnable], m.Counts[fsm.StatusExecuting],
				m.Counts[fsm.StatusAwaitingSignal]+m.Counts[fsm.StatusAwaitingChildren], m.Counts[fsm.StatusDone], m.Counts[fsm.StatusFailed])
		}
		t.write(w, a.console.width())
	})
}

func (d *database) machines(ctx context.Context, timeout time.Duration) ([]*machine, error) {
	if timeout == 0 {
		timeout = 10 * time.Minute // the most that Counts takes
	}
	counts, err := d.Counts(ctx, engine.CountsOptions{Timeout: min(max(timeout, time.Second), 10*time.Minute)})
	if err != nil {
		return nil, err
	}
	known := map[string]*machine{}
	get := func(name string, version int) *machine {
		id := fmt.Sprintf("%s/%d", name, version)
		if known[id] == nil {
			known[id] = &machine{Machine: name, Version: version, Counts: map[fsm.Status]int64{}}
			for _, s := range fsm.Statuses() {
				known[id].Counts[s] = 0
			}
		}
		return known[id]
	}
	for _, c := range counts.Counts {
		get(c.Machine, c.Version).Counts[c.Status] += c.Count
	}
	workers, err := d.Admin().Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range workers {
		if !w.Live || w.Draining {
			continue
		}
		for _, id := range w.Machines {
			cut := strings.LastIndexByte(id, '/')
			var version int
			if _, err := fmt.Sscan(id[cut+1:], &version); cut < 0 || err != nil {
				continue
			}
			get(id[:cut], version).Workers++
		}
	}
	out := []*machine{}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		out = append(out, known[id])
	}
	return out, nil
}
