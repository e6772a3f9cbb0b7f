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

type scheduleCommands struct {
	List   scheduleList   `cmd:"" help:"List the schedules, a page at a time: what they insert, when next, since when they are paused."`
	Pause  schedulePause  `cmd:"" help:"Pause a schedule: no process fires it."`
	Resume scheduleResume `cmd:"" help:"End a pause."`
	Run    scheduleRun    `cmd:"" help:"Insert an instance of a schedule now, in addition to its occurrences."`
	Delete scheduleDelete `cmd:"" help:"Remove a schedule; its instances stay; asks first."`
}

type scheduleList struct {
	Limit int    `default:"50"                                                         help:"How many to show at most."`
	After string `help:"Show the next page: the name that the page before ended with." placeholder:"NAME"`
}

// schedule is a stored schedule.
type schedule struct {
	Schedule   string         `json:"schedule"`
	Expression string         `json:"expression"`
	Zone       string         `json:"zone"`
	CatchUp    engine.CatchUp `json:"catch_up"`
	Overlap    engine.Overlap `json:"overlap"`
	Jitter     float64        `json:"jitter_seconds"`
	Machine    string         `json:"machine"`
	Version    int            `json:"version"`
	Queue      string         `json:"queue"`
	Next       time.Time      `json:"next_at"` // if it has passed, the schedule is due
	Last       *time.Time     `json:"last_at"`
	Instance   fsm.ID         `json:"instance,omitempty"` // the newest one
	Since      *time.Time     `json:"paused_since"`
}

// schedulesListed is a page. Next is "" on the last one.
type schedulesListed struct {
	Schedules []schedule `json:"schedules"`
	Next      string     `json:"next"`
}

// Validate checks the values.
func (c *scheduleList) Validate() error {
	if c.Limit < 1 {
		return fmt.Errorf("--limit: %d, at least 1", c.Limit)
	}
	return nil
}

// Run runs the command.
func (c *scheduleList) Run(ctx context.Context, a *app, db *database) error {
	at, err := db.now(ctx)
	if err != nil {
		return err
	}
	out := schedulesListed{Schedules: []schedule{}, Next: c.After}
	for first := true; len(out.Schedules) < c.Limit && (first || out.Next != ""); first = false {
		page, err := db.Admin().Schedules(ctx, engine.ScheduleQuery{After: out.Next, Limit: min(c.Limit-len(out.Schedules), fsm.MaxLimit)})
		if err != nil {
			return err
		}
		for _, s := range page.Schedules {
			out.Schedules = append(out.Schedules, schedule{s.Name, s.Expression, s.Zone, s.CatchUp, s.Overlap, s.Jitter.Seconds(), s.Machine,
				s.Version, s.Queue, s.Next.UTC(), absent(s.Last), s.Instance, absent(s.Paused)})
		}
		out.Next = page.Next
	}
	return a.show(out, func(w io.Writer) {
		t := newTable("schedule", "when", "zone", "machine", "queue", "next", "last", "instance", "paused")
		for _, s := range out.Schedules {
			t.add(s.Schedule, s.Expression, s.Zone, fmt.Sprintf("%s/%d", s.Machine, s.Version), s.Queue, s.Next, s.Last, newest(s.Instance), age(at, s.Since))
		}
		t.write(w, a.console.width())
		if out.Next != "" {
			fmt.Fprintf(w, "there is more: --after %q\n", out.Next)
		}
	})
}

// newest returns the newest instance of a schedule; nil if it has none yet.
func newest(id fsm.ID) any {
	if id == 0 {
		return nil
	}
	return id
}

type schedulePause struct {
	Schedule string `arg:"" help:"The name of the schedule."`
}

// Run runs the command.
func (c *schedulePause) Run(ctx context.Context, a *app, db *database) error {
	return a.pauseSchedule(ctx, db, c.Schedule, "paused", (*engine.Admin).PauseSchedule)
}

type scheduleResume struct {
	Schedule string `arg:"" help:"The name of the schedule."`
}

// Run runs the command.
func (c *scheduleResume) Run(ctx context.Context, a *app, db *database) error {
	return a.pauseSchedule(ctx, db, c.Schedule, "resumed", (*engine.Admin).ResumeSchedule)
}

func (a *app) pauseSchedule(ctx context.Context, db *database, name, did string, how func(*engine.Admin, context.Context, string, ...engine.VerbOption) (bool, error)) error {
	news, err := how(db.Admin(), ctx, name)
	if err != nil {
		return onSchedule(name, err)
	}
	return a.show(map[string]any{"schedule": name, "changed": news}, func(w io.Writer) {
		if news {
			fmt.Fprintf(w, "%s %q\n", did, name)
		} else {
			fmt.Fprintf(w, "%q was %s already\n", name, did)
		}
	})
}

type scheduleRun struct {
	Schedule string `arg:"" help:"The name of the schedule."`
}

// Run runs the command.
func (c *scheduleRun) Run(ctx context.Context, a *app, db *database) error {
	id, err := db.Admin().RunSchedule(ctx, c.Schedule)
	if err != nil {
		return onSchedule(c.Schedule, err)
	}
	return a.show(map[string]any{"schedule": c.Schedule, "instance": id}, func(w io.Writer) {
		fmt.Fprintf(w, "inserted instance %d\n", id)
	})
}

type scheduleDelete struct {
	Schedule string `arg:""             help:"The name of the schedule."`
	Yes      bool   `help:"Do not ask."`
}

// Run runs the command. It asks only if the schedule exists.
func (c *scheduleDelete) Run(ctx context.Context, a *app, db *database) error {
	stored, err := find(ctx, db.Admin(), c.Schedule)
	if err != nil {
		return onSchedule(c.Schedule, err)
	}
	question := fmt.Sprintf("Delete the schedule %q, %q, of machine %q? Its instances stay; a process that still declares it stores it again when it starts.",
		c.Schedule, stored.Expression, stored.Machine)
	if err := a.console.confirm(ctx, question, c.Yes); err != nil {
		return err
	}
	if err := db.Admin().DeleteSchedule(ctx, c.Schedule); err != nil {
		return onSchedule(c.Schedule, err)
	}
	return a.show(map[string]any{"schedule": c.Schedule, "deleted": true}, func(w io.Writer) { fmt.Fprintf(w, "deleted %q\n", c.Schedule) })
}

func find(ctx context.Context, a *engine.Admin, name string) (engine.StoredSchedule, error) {
	for s, err := range a.AllSchedules(ctx, engine.ScheduleQuery{}) {
		if err != nil || s.Name == name {
			return s, err
		}
	}
	return engine.StoredSchedule{}, fmt.Errorf("%w: %q", engine.ErrNoSchedule, name)
}

func onSchedule(name string, err error) error {
	if errors.Is(err, engine.ErrNoSchedule) { // this error names the schedule
		return fmt.Errorf("%w\n  gendurable schedule list has the names", err)
	}
	return fmt.Errorf("schedule %q: %w", name, err)
}
