package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// selection is what a verb is about: instances that are named, or all that a filter selects.
type selection struct {
	Targets []string `arg:""          help:"Ids, or key: and a correlation key."             name:"target" optional:""`
	Filter  filter   `embed:""        group:"In bulk"`
	All     bool     `group:"In bulk" help:"All instances that the verb applies to."`
	DryRun  bool     `group:"In bulk" help:"Show what would be changed, and change nothing."`
	Yes     bool     `group:"In bulk" help:"Do not ask."`
}

// lasts: in bulk it takes what it takes.
func (s *selection) lasts() bool { return len(s.Targets) == 0 }

type verb struct {
	engine.Verb

	did string
	one func(*engine.Admin, context.Context, fsm.Target, ...engine.VerbOption) (engine.Changed, error)
}

var (
	cancel = verb{engine.VerbCancel, "cancelled", (*engine.Admin).Cancel}
	retry  = verb{engine.VerbRetry, "retried", (*engine.Admin).Retry}
	pause  = verb{engine.VerbPause, "paused", (*engine.Admin).Pause}
	resume = verb{engine.VerbResume, "resumed", (*engine.Admin).Resume}
	runNow = verb{engine.VerbRunNow, "made eligible", (*engine.Admin).RunNow}
)

type instanceCancel struct {
	Selection   selection `embed:""`
	Reason      string    `help:"Is kept as the last error." placeholder:"TEXT"`
	Descendants bool      `help:"All live descendants, too."`
}

func (c *instanceCancel) lasts() bool { return c.Selection.lasts() }

// Run the command.
func (c *instanceCancel) Run(ctx context.Context, a *app) error {
	var options []engine.VerbOption
	if c.Reason != "" {
		options = append(options, engine.Reason(c.Reason))
	}
	if c.Descendants {
		options = append(options, engine.Descendants())
	}
	return c.Selection.carryOut(ctx, a, cancel, options...)
}

type instanceRetry struct {
	Selection selection `embed:""`
}

func (c *instanceRetry) lasts() bool { return c.Selection.lasts() }

// Run the command.
func (c *instanceRetry) Run(ctx context.Context, a *app) error {
	return c.Selection.carryOut(ctx, a, retry)
}

type instancePause struct {
	Selection selection `embed:""`
}

func (c *instancePause) lasts() bool { return c.Selection.lasts() }

// Run the command.
func (c *instancePause) Run(ctx context.Context, a *app) error {
	return c.Selection.carryOut(ctx, a, pause)
}

type instanceResume struct {
	Selection selection `embed:""`
}

func (c *instanceResume) lasts() bool { return c.Selection.lasts() }

// Run the command.
func (c *instanceResume) Run(ctx context.Context, a *app) error {
	return c.Selection.carryOut(ctx, a, resume)
}

type instanceRunNow struct {
	Selection selection `embed:""`
}

func (c *instanceRunNow) lasts() bool { return c.Selection.lasts() }

// Run the command.
func (c *instanceRunNow) Run(ctx context.Context, a *app) error {
	return c.Selection.carryOut(ctx, a, runNow)
}

type instanceReschedule struct {
	Selection selection `embed:""`
	At        string    `help:"A time like 2026-11-21T18:00:00Z, or a duration from now like 90m; a past one is now." placeholder:"TIME" required:""`
}

func (c *instanceReschedule) lasts() bool { return c.Selection.lasts() }

// Run the command. A duration counts from the server's clock, once: in bulk all get the same time.
func (c *instanceReschedule) Run(ctx context.Context, a *app) error {
	if _, err := moment("--at", c.At, time.Time{}, false); err != nil {
		return err
	}
	targets, err := c.Selection.targets()
	if err != nil {
		return err
	}
	db, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	at, err := now(ctx, db.pool)
	if err != nil {
		return err
	}
	if at, err = moment("--at", c.At, at, false); err != nil {
		return err
	}
	reschedule := verb{engine.VerbReschedule, "rescheduled",
		func(admin *engine.Admin, ctx context.Context, to fsm.Target, _ ...engine.VerbOption) (engine.Changed, error) {
			return admin.Reschedule(ctx, to, at)
		}}
	return c.Selection.apply(ctx, a, db, reschedule, targets, engine.At(at))
}

// targets are the instances that are named; none: the filter selects.
func (s *selection) targets() ([]fsm.Target, error) {
	bulk := s.All || s.Filter.given()
	switch {
	case bulk && len(s.Targets) > 0:
		return nil, usagef("either name the instances, or select them by a filter")
	case !bulk && len(s.Targets) == 0:
		return nil, usagef("which instances? Name them, give a filter, or --all")
	case !bulk && s.DryRun:
		return nil, usagef("--dry-run is of a filter; instance get shows one")
	}
	targets := make([]fsm.Target, len(s.Targets))
	for n, address := range s.Targets {
		var err error
		if targets[n], err = target(address); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// carryOut is the way of the verbs that need nothing of the database first.
func (s *selection) carryOut(ctx context.Context, a *app, v verb, options ...engine.VerbOption) error {
	targets, err := s.targets()
	if err != nil {
		return err
	}
	db, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	return s.apply(ctx, a, db, v, targets, options...)
}

func (s *selection) apply(ctx context.Context, a *app, db *database, v verb, targets []fsm.Target, options ...engine.VerbOption) error {
	if len(targets) == 0 {
		return s.inBulk(ctx, a, db, v, options)
	}
	return s.oneByOne(ctx, a, db, v, targets, options)
}

// changed is what a verb did to one instance, or why it did not.
type changed struct {
	Target      string     `json:"target"`
	ID          fsm.ID     `json:"id,omitempty"`
	Was         fsm.Status `json:"was,omitempty"`
	Is          fsm.Status `json:"is,omitempty"`
	Descendants []fsm.ID   `json:"descendants,omitempty"`
	Error       string     `json:"error,omitempty"`
	Kind        string     `json:"kind,omitempty"` // of the error
}

func (s *selection) oneByOne(ctx context.Context, a *app, db *database, v verb, targets []fsm.Target, options []engine.VerbOption) error {
	all := make([]changed, len(targets))
	var errs []error
	for n, to := range targets {
		done, err := v.one(db.Admin(), ctx, to, options...)
		all[n] = changed{Target: s.Targets[n], ID: done.ID, Was: done.Was, Is: done.Is, Descendants: done.Descendants}
		if err != nil {
			all[n].Error, all[n].Kind = said(err), codeOf(err).String()
			errs = append(errs, err)
		}
	}
	err := a.show(map[string]any{"verb": v.Verb, "instances": all}, func(w io.Writer) {
		for _, one := range all {
			if one.Error != "" {
				continue
			}
			fmt.Fprintf(w, "%s %d, which was %s", v.did, one.ID, one.Was)
			if len(one.Descendants) > 0 {
				fmt.Fprintf(w, ", and %d descendants", len(one.Descendants))
			}
			fmt.Fprintln(w)
		}
	})
	return errors.Join(append(errs, err)...)
}

// bulk is a plan, and what became of it.
type bulk struct {
	Verb    engine.Verb `json:"verb"`
	Matched int64       `json:"matched"`
	Sample  []summary   `json:"sample"`
	Applied *applied    `json:"applied"` // null: it was not carried out
}

type applied struct {
	Changed     int64 `json:"changed"`
	Descendants int64 `json:"descendants"`
	Skipped     int64 `json:"skipped"`
	Failed      int64 `json:"failed"`
}

func (s *selection) inBulk(ctx context.Context, a *app, db *database, v verb, options []engine.VerbOption) error {
	at, err := now(ctx, db.pool)
	if err != nil {
		return err
	}
	f, err := s.Filter.engine(at)
	if err != nil {
		return err
	}
	f.All = s.All
	plan, err := db.Admin().Bulk(ctx, v.Verb, f)
	if err != nil {
		return err
	}
	out := bulk{Verb: v.Verb, Matched: plan.Matched, Sample: []summary{}}
	for n := range plan.Sample {
		out.Sample = append(out.Sample, summarize(&plan.Sample[n]))
	}
	if !a.JSON {
		out.write(a.console.out, at, a.console.width())
	}
	switch {
	case plan.Matched == 0:
		if a.JSON {
			err = writeJSON(a.console.out, out)
		}
		return errors.Join(&exitError{code: codeUnmet, err: errors.New("nothing matched, nothing was done")}, err)
	case s.DryRun:
		if a.JSON {
			return writeJSON(a.console.out, out)
		}
		return nil
	}
	if a.JSON && !s.Yes {
		out.write(a.console.errs, at, 0) // what the question is about
	}
	if err := a.console.confirm(ctx, fmt.Sprintf("Carry out %s on %d instances?", v.Verb, plan.Matched), s.Yes); err != nil {
		return err
	}
	done, failed := plan.Apply(ctx, options...)
	out.Applied = &applied{done.Changed, done.Descendants, done.Skipped, done.Failed}
	err = a.show(out, func(w io.Writer) {
		fmt.Fprintf(w, "%s %d, skipped %d, failed %d", v.did, done.Changed, done.Skipped, done.Failed)
		if done.Descendants > 0 {
			fmt.Fprintf(w, ", and %d descendants", done.Descendants)
		}
		fmt.Fprintln(w)
	})
	return errors.Join(failed, err)
}

// write shows the plan.
func (b *bulk) write(w io.Writer, at time.Time, width int) {
	fmt.Fprintf(w, "%s applies to %d instances\n", b.Verb, b.Matched)
	if len(b.Sample) > 0 {
		instances(b.Sample, at).write(w, width)
	}
	if more := b.Matched - int64(len(b.Sample)); more > 0 {
		fmt.Fprintf(w, "… and %d more\n", more)
	}
}
