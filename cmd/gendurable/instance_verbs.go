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

// selection is what a verb applies to: named instances, or all that a filter selects.
type selection struct {
	Targets []address `arg:""          help:"Ids, or key: and a correlation key."                    name:"target" optional:""`
	Filter  filter    `embed:""        group:"In bulk"`
	All     bool      `group:"In bulk" help:"Select all instances that the verb applies to."`
	DryRun  bool      `group:"In bulk" help:"Show which instances would change, and change nothing."`
	Yes     bool      `group:"In bulk" help:"Do not ask."`
}

// lasts exempts bulk verbs from --timeout.
func (s *selection) lasts() bool { return len(s.Targets) == 0 }

type verb struct {
	engine.Verb

	did string
	one func(*engine.Admin, context.Context, fsm.Target, ...engine.VerbOption) (engine.Changed, error)
}

var (
	cancel  = verb{engine.VerbCancel, "cancelled", (*engine.Admin).Cancel}
	retry   = verb{engine.VerbRetry, "retried", (*engine.Admin).Retry}
	restart = verb{engine.VerbRestart, "restarted", (*engine.Admin).Restart}
	pause   = verb{engine.VerbPause, "paused", (*engine.Admin).Pause}
	resume  = verb{engine.VerbResume, "resumed", (*engine.Admin).Resume}
	runNow  = verb{engine.VerbRunNow, "made eligible", (*engine.Admin).RunNow}
)

type instanceCancel struct {
	selection
	Descendants bool `help:"Cancel all live descendants, too."`
}

// Run runs the command.
func (c *instanceCancel) Run(ctx context.Context, a *app, db *database) error {
	var options []engine.VerbOption
	if c.Descendants {
		options = append(options, engine.Descendants())
	}
	return c.apply(ctx, a, db, cancel, options...)
}

type instanceRetry struct {
	selection
}

// Run runs the command.
func (c *instanceRetry) Run(ctx context.Context, a *app, db *database) error {
	return c.apply(ctx, a, db, retry)
}

type instanceRestart struct {
	selection
}

// Run runs the command.
func (c *instanceRestart) Run(ctx context.Context, a *app, db *database) error {
	return c.apply(ctx, a, db, restart)
}

type instancePause struct {
	selection
}

// Run runs the command.
func (c *instancePause) Run(ctx context.Context, a *app, db *database) error {
	return c.apply(ctx, a, db, pause)
}

type instanceResume struct {
	selection
}

// Run runs the command.
func (c *instanceResume) Run(ctx context.Context, a *app, db *database) error {
	return c.apply(ctx, a, db, resume)
}

type instanceRunNow struct {
	selection
}

// Run runs the command.
func (c *instanceRunNow) Run(ctx context.Context, a *app, db *database) error {
	return c.apply(ctx, a, db, runNow)
}

type instanceReschedule struct {
	selection
	At string `help:"A time like 2026-11-21T18:00:00Z, or a duration from now like 90m; a past time means now." placeholder:"TIME" required:""`
}

// Validate checks the time, too.
func (c *instanceReschedule) Validate() error {
	if _, err := moment("--at", c.At, time.Time{}, false); err != nil {
		return err
	}
	return c.selection.Validate()
}

// Run runs the command. A duration counts from the server's time once, so that in bulk all
// instances get the same time.
func (c *instanceReschedule) Run(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
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
	return c.apply(ctx, a, db, reschedule, engine.At(at))
}

// Validate checks that either instances are named, or a filter is given.
func (s *selection) Validate() error {
	bulk := s.All || s.Filter.given()
	switch {
	case bulk && len(s.Targets) > 0:
		return errors.New("instances and a filter exclude each other: name the instances, or select them by a filter")
	case !bulk && len(s.Targets) == 0:
		return errors.New("which instances? Name them, give a filter, or --all")
	case !bulk && s.DryRun:
		return errors.New("--dry-run needs a filter; gendurable instance get shows a single instance")
	}
	return s.Filter.check()
}

func (s *selection) apply(ctx context.Context, a *app, db *database, v verb, options ...engine.VerbOption) error {
	if len(s.Targets) == 0 {
		return s.inBulk(ctx, a, db, v, options)
	}
	return s.oneByOne(ctx, a, db, v, options)
}

// changed says how a verb changed one instance, or why it did not.
type changed struct {
	Target      string     `json:"target"`
	ID          fsm.ID     `json:"id,omitempty"`
	Was         fsm.Status `json:"was,omitempty"`
	Is          fsm.Status `json:"is,omitempty"`
	Descendants []fsm.ID   `json:"descendants,omitempty"`
	Error       string     `json:"error,omitempty"`
	Kind        string     `json:"kind,omitempty"` // of the error
}

func (s *selection) oneByOne(ctx context.Context, a *app, db *database, v verb, options []engine.VerbOption) error {
	all := make([]changed, len(s.Targets))
	var errs []error
	for n, target := range s.Targets {
		done, err := v.one(db.Admin(), ctx, target.to, options...)
		all[n] = changed{Target: target.text, ID: done.ID, Was: done.Was, Is: done.Is, Descendants: done.Descendants}
		if err != nil {
			err = target.advise(err)
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

// bulk is a plan, and its result.
type bulk struct {
	Verb    engine.Verb `json:"verb"`
	Matched int64       `json:"matched"`
	Sample  []summary   `json:"sample"`
	Applied *applied    `json:"applied"` // null: the plan was not carried out
}

type applied struct {
	Changed     int64 `json:"changed"`
	Descendants int64 `json:"descendants"`
	Skipped     int64 `json:"skipped"`
	Failed      int64 `json:"failed"`
}

func (s *selection) inBulk(ctx context.Context, a *app, db *database, v verb, options []engine.VerbOption) error {
	at, err := db.now(ctx)
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
		out.write(a.console.errs, at, 0) // the question is about it
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
