package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/engine"
)

type failuresCommand struct {
	Machine     string `help:"Only of this machine."                                 placeholder:"NAME"`
	Fingerprint string `help:"Only this group."                                      placeholder:"FINGERPRINT"`
	Queue       string `help:"Only of this queue."                                   placeholder:"NAME"`
	Since       string `help:"Only of instances that ended since this time, or age." placeholder:"TIME"`
	Limit       int    `default:"50"                                                 help:"How many groups to show at most."`
}

// Validate checks the time.
func (c *failuresCommand) Validate() error {
	_, err := moment("--since", c.Since, time.Time{}, true)
	return err
}

// Run runs the command.
func (c *failuresCommand) Run(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
	if err != nil {
		return err
	}
	o := engine.FailuresOptions{Machine: c.Machine, Queue: c.Queue, Fingerprint: c.Fingerprint, Limit: c.Limit}
	if o.Since, err = moment("--since", c.Since, at, true); err != nil {
		return err
	}
	found, err := db.Failures(ctx, o)
	if err != nil {
		return err
	}
	return a.show(found, func(w io.Writer) { writeFailures(w, &found, at, a.console.width()) })
}

func writeFailures(w io.Writer, found *engine.Failures, at time.Time, width int) {
	t := newTable("count", "machine", "step", "failure", "last", "newest", "fingerprint", "error")
	for _, g := range found.Groups {
		t.add(countOf(&g), fmt.Sprintf("%s/%d", g.Machine, g.Version), g.Step, string(g.Failure), age(at, &g.Last), g.Newest, g.Fingerprint, g.Error)
	}
	t.write(w, width)
	if found.More {
		fmt.Fprintf(w, "there may be other groups: %d failures were counted, the oldest %s ago\n", found.Looked, age(at, &found.Since))
	}
}

// countOf is the number of a group, with a sign that it may be larger.
func countOf(g *engine.FailureGroup) string {
	if g.AtLeast {
		return fmt.Sprintf("%d+", g.Count)
	}
	return strconv.FormatInt(g.Count, 10)
}

type overviewCommand struct {
	Patience time.Duration `default:"1m" help:"Warn of work that has been due, and of leases that have been expired, for longer than this."`
}

// overview is everything that tells whether all is well.
type overview struct {
	At       time.Time           `json:"at"`
	Queues   []engine.QueueLoad  `json:"queues"`
	Workers  []engine.WorkerLoad `json:"workers"`
	Failures engine.Failures     `json:"failures"`
	Gates    []engine.GateStatus `json:"gates"`
	Warnings []finding           `json:"warnings"`

	bound bool // to some instances
}

// quickChecks are the checks of doctor that an overview makes: those about the work that read a
// bounded number of rows.
var quickChecks = []string{"leases", "unserved", "steps", "paused-queues", "gates"}

const overviewFailures = 10

// Run runs the command.
func (c *overviewCommand) Run(ctx context.Context, a *app, db *database) error {
	if db.bound() {
		return c.within(ctx, a, db)
	}
	load, err := db.Admin().Load(ctx)
	if err != nil {
		return err
	}
	out := overview{At: load.At, Queues: load.Queues, Workers: load.Workers, Warnings: []finding{}}
	if out.Failures, err = db.Failures(ctx, engine.FailuresOptions{Limit: overviewFailures}); err != nil {
		return err
	}
	if out.Gates, err = db.Admin().Gates(ctx); err != nil {
		return err
	}
	p := &patient{doctorCommand: &doctorCommand{Patience: c.Patience}, app: a, pool: db.pool, schema: a.Schema, here: time.Now, limits: usual()}
	for _, name := range quickChecks {
		f, err := p.examine(ctx, name)
		if err != nil {
			return err
		}
		if f.Grade != gradeOK {
			out.Warnings = append(out.Warnings, f)
		}
	}
	return a.show(out, func(w io.Writer) { out.write(w, a.console.width()) })
}

// within shows the parts that tell instances within the bounds apart from others.
func (c *overviewCommand) within(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
	if err != nil {
		return err
	}
	load, err := db.Admin().Load(ctx)
	if err != nil && !errors.Is(err, engine.ErrBounds) {
		return err
	}
	out := overview{At: at, Queues: some(load.Queues), Workers: []engine.WorkerLoad{}, Warnings: []finding{}, bound: true}
	if out.Failures, err = db.Failures(ctx, engine.FailuresOptions{Limit: overviewFailures}); err != nil {
		return err
	}
	gates, err := db.Admin().Gates(ctx)
	if err != nil && !errors.Is(err, engine.ErrBounds) {
		return err
	}
	out.Gates = some(gates)
	return a.show(out, func(w io.Writer) { out.write(w, a.console.width()) })
}

func (o *overview) write(w io.Writer, width int) {
	queues := newTable("queue", "due", "oldest", "delayed", "in line", "executing", "slots", "workers", "paused")
	for _, q := range o.Queues {
		line := traffic{AtLeast: q.AtLeast}
		queues.add(q.Queue, line.waiting(q.Due), age(o.At, absent(q.OldestDue)), line.waiting(q.Delayed), line.waiting(q.InLine), q.Executing, q.Slots, q.Workers,
			age(o.At, absent(q.PausedSince)))
	}
	queues.write(w, width)
	live, executing, slots := 0, int64(0), 0
	for _, one := range o.Workers {
		if one.Live {
			live, executing, slots = live+1, executing+one.Executing, slots+one.Slots
		}
	}
	if o.bound {
		fmt.Fprintln(w, "\nonly what the bounds tell apart is shown: no workers and warnings, and no queues or gates that others share")
	} else {
		fmt.Fprintf(w, "\n%d live workers execute %d in %d slots\n", live, executing, slots)
	}
	if len(o.Failures.Groups) > 0 {
		fmt.Fprintln(w)
		writeFailures(w, &o.Failures, o.At, width)
	}
	if len(o.Gates) > 0 {
		fmt.Fprintln(w)
		gates := newTable("gate", "bounds", "taken", "waiting", "for")
		for _, g := range o.Gates {
			gates.add(g.Name, gateStanding(&g), g.Taken, g.Waiting, span(g.Lag))
		}
		gates.write(w, width)
	}
	if len(o.Warnings) > 0 {
		fmt.Fprintln(w)
	}
	for _, f := range o.Warnings {
		f.write(w)
	}
}
