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
)

type workerCommands struct {
	List workerList `cmd:"" help:"List the processes that work on queues; a dead one is listed for an hour."`
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

// Run runs the command.
func (*workerList) Run(ctx context.Context, a *app, db *database) error {
	load, err := db.Admin().Load(ctx)
	if err != nil {
		return err
	}
	out := make([]busy, len(load.Workers))
	for n, w := range load.Workers {
		out[n] = busy{processes([]engine.Worker{w.Worker})[0], w.Executing}
	}
	return a.show(map[string]any{"workers": out}, func(w io.Writer) {
		t := newTable("id", "state", "host", "pid", "up", "beat", "executing", "queues", "machines", "program")
		for _, one := range out {
			t.add(one.ID, one.State, one.Host, one.PID, load.At.Sub(one.Started), max(0, load.At.Sub(one.Beat)), one.Executing, slots(one.Queues),
				one.Machines, one.Version)
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
