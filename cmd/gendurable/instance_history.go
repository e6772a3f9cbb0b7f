package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type instanceHistory struct {
	Target address `arg:""         help:"An id, or key: and a correlation key. Of an instance that is gone only the id."`
	Limit  int     `default:"1000" help:"Show so many of its oldest rows at most."`
}

// Validate checks the values.
func (c *instanceHistory) Validate() error {
	if c.Limit < 1 {
		return fmt.Errorf("--limit: %d, at least 1", c.Limit)
	}
	return nil
}

// told is the history of an instance. More is true if there are rows behind the limit.
type told struct {
	Transitions []engine.Transition `json:"transitions"`
	More        bool                `json:"more"`
}

// Run runs the command.
func (c *instanceHistory) Run(ctx context.Context, a *app, db *database) error {
	out := told{Transitions: []engine.Transition{}}
	for t, err := range db.History(ctx, c.Target.to) {
		if err != nil {
			return c.Target.advise(err)
		}
		if out.More = len(out.Transitions) == c.Limit; out.More {
			break
		}
		t.At = t.At.UTC()
		out.Transitions = append(out.Transitions, t)
	}
	return a.show(out, func(w io.Writer) { out.write(w, a.console.width()) })
}

func (o *told) write(w io.Writer, width int) {
	if len(o.Transitions) == 0 {
		fmt.Fprintln(w, "nothing is recorded: see History of the machine's definition, or of engine.Config")
		return
	}
	t := newTable("at", "visit", "kind", "from", "to", "attempt", "waited", "took", "what")
	for _, x := range o.Transitions {
		t.add(x.At, x.Visit, x.Kind, x.From, x.To, x.Attempt, span(x.Waited), span(x.Took), details(&x))
	}
	t.write(w, width)
	if o.More {
		fmt.Fprintln(w, "… and more: --limit")
	}
}

// details returns the rest of a row as one line.
func details(t *engine.Transition) string {
	var parts []string
	if t.Actor != "" {
		parts = append(parts, "by "+t.Actor)
	}
	for _, text := range []string{t.Reason, string(t.Failure), t.Error, string(t.Diff)} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if change := changes(t.Before, t.After); change != "" {
		parts = append(parts, change)
	}
	return strings.Join(parts, "; ")
}

// ofHistory are the options of commands that read the history of a machine.
type ofHistory struct {
	Machine string `arg:""                          help:"A machine's name."`
	Version int    `help:"Only this version of it." placeholder:"N"`
	Since   string `default:"24h"                   help:"From this time, or age; 31 days at most." placeholder:"TIME"`
}

// options returns them in the engine's form.
func (c *ofHistory) options(ctx context.Context, db *database) (o engine.HistoryOptions, err error) {
	at, err := db.now(ctx)
	if err != nil {
		return o, err
	}
	o = engine.HistoryOptions{Version: c.Version, Until: at.Add(time.Second)}
	o.Since, err = moment("--since", c.Since, at, true)
	return o, err
}

type machineTimes struct{ ofHistory }

// Run runs the command.
func (c *machineTimes) Run(ctx context.Context, a *app, db *database) error {
	o, err := c.options(ctx, db)
	if err != nil {
		return err
	}
	list, err := db.StepTimes(ctx, c.Machine, o)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"steps": list}, func(w io.Writer) {
		t := newTable("step", "runs", "retried", "failed", "crashed", "took p50", "took p95", "took p99", "waited p50", "waited p95",
			"waited p99")
		for _, s := range list {
			t.add(s.Step, s.Runs, s.Retried, s.Failed, s.Crashed, fine(s.Took.P50), fine(s.Took.P95), fine(s.Took.P99), fine(s.Waited.P50),
				fine(s.Waited.P95), fine(s.Waited.P99))
		}
		t.write(w, a.console.width())
	})
}

// fine writes a time that may be short.
func fine(d time.Duration) string {
	if d < time.Second {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

type machineFailures struct{ ofHistory }

// Run runs the command.
func (c *machineFailures) Run(ctx context.Context, a *app, db *database) error {
	o, err := c.options(ctx, db)
	if err != nil {
		return err
	}
	list, err := db.StepFailures(ctx, c.Machine, o)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"failures": list}, func(w io.Writer) {
		t := newTable("step", "kind", "failure", "count", "of", "last", "error")
		for _, x := range list {
			t.add(x.Step, x.Kind, cmp.Or(x.Failure, fsm.Failure("-")), x.Count, x.Of, x.Last.UTC(), x.Error)
		}
		t.write(w, a.console.width())
	})
}

type machineEdges struct{ ofHistory }

// Run runs the command.
func (c *machineEdges) Run(ctx context.Context, a *app, db *database) error {
	o, err := c.options(ctx, db)
	if err != nil {
		return err
	}
	list, err := db.StepEdges(ctx, c.Machine, o)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"edges": list}, func(w io.Writer) {
		t := newTable("from", "to", "kind", "count")
		for _, x := range list {
			t.add(x.From, cmp.Or(x.To, "(end)"), x.Kind, x.Count)
		}
		t.write(w, a.console.width())
	})
}
