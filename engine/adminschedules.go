package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// A *[VerbError] of a verb on schedules names the verb by one of these.
const (
	VerbPauseSchedule  Verb = "pause_schedule"
	VerbResumeSchedule Verb = "resume_schedule"
	VerbRunSchedule    Verb = "run_schedule"
	VerbDeleteSchedule Verb = "delete_schedule"
)

// StoredSchedule is a schedule as it is in force.
type StoredSchedule struct {
	Name       string        `json:"name"`
	Expression string        `json:"expression"` // as given to Cron; of Every "@every" and the interval
	Zone       string        `json:"zone"`
	CatchUp    CatchUp       `json:"catch_up"`
	Overlap    Overlap       `json:"overlap"`
	Jitter     time.Duration `json:"jitter_ns"`
	Machine    string        `json:"machine"`
	Version    int           `json:"version"`
	Queue      string        `json:"queue"`
	Next       time.Time     `json:"next"`               // the occurrence that comes next; if it has passed, it is due
	Last       time.Time     `json:"last,omitzero"`      // the newest occurrence that was fired; zero: none
	Instance   fsm.ID        `json:"instance,omitempty"` // the newest instance, also of RunSchedule; it may have been collected. 0: none
	Paused     time.Time     `json:"paused,omitzero"`    // since when; zero: it is not
}

// ScheduleQuery is a place in the list of schedules.
type ScheduleQuery struct {
	Limit int    // of one page: 1 to fsm.MaxLimit; 0: fsm.DefaultLimit
	After string // SchedulePage.Next of the page before, or any name; "": from the beginning
	// Within leaves out schedules that insert instances outside of these bounds. A schedule's labels
	// are those that it gives to its instances.
	Within Bounds
}

// SchedulePage is one part of the list of schedules.
type SchedulePage struct {
	Schedules []StoredSchedule `json:"schedules"`
	Next      string           `json:"next,omitempty"` // for ScheduleQuery.After: the last name; "": there is no more
}

// Schedules reads one page of the stored schedules, by name in the database's collation. It lists
// each schedule that is stored all the time once, although others are stored or deleted meanwhile.
//
// Errors: a *[QueryError].
func (a *Admin) Schedules(ctx context.Context, q ScheduleQuery) (page SchedulePage, err error) {
	defer a.engine.explain(ctx, toRead("schedules", "gen_durable"), &err)
	limit := cmp.Or(q.Limit, fsm.DefaultLimit)
	if limit < 0 || limit > fsm.MaxLimit {
		return SchedulePage{}, badQuery("Limit", "%d, want 1 to %d", limit, fsm.MaxLimit)
	}
	if q.After != "" {
		if err := checkName(q.After, MaxScheduleNameBytes); err != nil {
			return SchedulePage{}, badQuery("After", "%w", err)
		}
	}
	within, err := bounds(a.and(q.Within))
	if err != nil {
		return SchedulePage{}, err
	}
	var rows []*ent.Schedule
	err = a.engine.patiently(ctx, task{doing: "list schedules"}, func() error {
		rows, err = a.engine.reads.Schedules(ctx, q.After, within, limit+1)
		return err
	})
	if err != nil {
		return SchedulePage{}, err
	}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = rows[limit-1].ID
	}
	page.Schedules = make([]StoredSchedule, len(rows))
	for i, s := range rows {
		if page.Schedules[i], err = storedSchedule(s); err != nil {
			return SchedulePage{}, err
		}
	}
	return page, nil
}

func storedSchedule(row *ent.Schedule) (StoredSchedule, error) {
	s := StoredSchedule{Name: row.ID, Expression: row.Expression, Zone: row.TimeZone, CatchUp: CatchUp(row.CatchUp),
		Overlap: Overlap(row.Overlap), Jitter: time.Duration(row.Jitter) * time.Microsecond, Next: row.NextAt}
	spec, err := store.DecodeSpec(row.Spec)
	if err != nil {
		return s, fmt.Errorf("read schedule %q: %w", s.Name, err)
	}
	s.Machine, s.Version, s.Queue = spec.Machine, spec.Version, spec.Queue
	if row.LastAt != nil {
		s.Last = *row.LastAt
	}
	if row.LastInstance != nil {
		s.Instance = *row.LastInstance
	}
	if row.PausedAt != nil {
		s.Paused = *row.PausedAt
	}
	return s, nil
}

// AllSchedules yields the stored schedules, as [Admin.Schedules] pages through them. Limit is the
// size of a page, 200 unless given; After is its beginning. An error ends the sequence, and comes
// with the zero schedule.
func (a *Admin) AllSchedules(ctx context.Context, q ScheduleQuery) iter.Seq2[StoredSchedule, error] {
	return func(yield func(StoredSchedule, error) bool) {
		q.Limit = cmp.Or(q.Limit, allLimit)
		for q := q; ; { // its own, since a sequence may be ranged over again
			page, err := a.Schedules(ctx, q)
			if err != nil {
				yield(StoredSchedule{}, err)
				return
			}
			for _, s := range page.Schedules {
				if !yield(s, nil) {
					return
				}
			}
			if q.After = page.Next; page.Next == "" {
				return
			}
		}
	}
}

// PauseSchedule keeps every process from firing a schedule until ResumeSchedule, across restarts
// and deploys. It reports whether the schedule was not paused before. Instances of the schedule go
// on. The options of the verbs on schedules are [Actor] and [Reason].
//
// Errors: ErrNoSchedule; a *[VerbError]; ErrUnknown where the COMMIT got no answer: call again.
func (a *Admin) PauseSchedule(ctx context.Context, name string, options ...VerbOption) (changed bool, err error) {
	return a.pauseSchedule(ctx, VerbPauseSchedule, name, options)
}

// ResumeSchedule ends a PauseSchedule, and reports whether there was one. The schedule's CatchUp
// decides about the occurrences that were missed. Errors: as of PauseSchedule.
func (a *Admin) ResumeSchedule(ctx context.Context, name string, options ...VerbOption) (changed bool, err error) {
	return a.pauseSchedule(ctx, VerbResumeSchedule, name, options)
}

func (a *Admin) pauseSchedule(ctx context.Context, verb Verb, name string, options []VerbOption) (changed bool, err error) {
	err = a.onSchedule(ctx, verb, name, options, func(by store.By) (err error) {
		changed, err = a.engine.store.PauseSchedule(ctx, name, verb == VerbPauseSchedule, by)
		return err
	}, nil)
	return changed, err
}

// RunSchedule inserts an instance of a schedule now, also while the schedule is paused, in addition
// to its occurrences: neither Next nor Last changes. Under OverlapSkip it is refused while the
// newest instance has not ended.
//
// Errors: ErrNoSchedule; a *[ConflictError] with that instance; a *[VerbError]; a *[InsertError] of
// middleware; ErrUnknown where the COMMIT got no answer: look at Schedules, and call again.
func (a *Admin) RunSchedule(ctx context.Context, name string, options ...VerbOption) (fsm.ID, error) {
	var fired []store.Inserted
	var spec *step.Spec
	var refused error
	mark := "run:" + uuid.NewString()
	err := a.onSchedule(ctx, VerbRunSchedule, name, options, func(by store.By) (err error) {
		fired, err = a.engine.store.RunSchedule(ctx, name, by, func(due store.Due) (store.Firing, error) {
			if Overlap(due.Overlap) == OverlapSkip && due.Live.ID != 0 {
				refused = &ConflictError{Verb: VerbRunSchedule, ID: fsm.ID(due.Live.ID), Status: fsm.Status(due.Live.Status),
					Err: errors.New("the instance of an earlier occurrence is live, and the schedule has OverlapSkip")}
			} else {
				refused = guardCaller(func() (err error) {
					spec, err = a.engine.occurrence(ctx, &due.Schedule, mark, time.Time{}, 0)
					return err
				})
			}
			return store.Firing{Specs: []*step.Spec{spec}}, refused
		})
		return err
	}, &refused)
	if err = cmp.Or(refused, err); err != nil {
		return 0, err
	}
	a.engine.nudge(spec.Queue)
	return fsm.ID(fired[0].ID), nil
}

// DeleteSchedule removes a schedule and leaves its instances. A process that still declares the
// schedule stores it again when it starts: remove it from the code first. Errors: as for
// PauseSchedule.
func (a *Admin) DeleteSchedule(ctx context.Context, name string, options ...VerbOption) error {
	return a.onSchedule(ctx, VerbDeleteSchedule, name, options, func(by store.By) error { return a.engine.store.DeleteSchedule(ctx, name, by) }, nil)
}

// onSchedule repeats a verb on transient faults until ctx ends, as the other verbs do. It does not
// repeat what was refused, which is no error of Postgres.
func (a *Admin) onSchedule(ctx context.Context, verb Verb, name string, options []VerbOption, once func(store.By) error, refused *error) (err error) {
	defer a.engine.explain(ctx, toOperateSchedules, &err)
	if err := a.whole(verb.method()); err != nil {
		return err
	}
	if err := checkName(name, MaxScheduleNameBytes); err != nil {
		return &VerbError{verb, "name", err}
	}
	by, err := a.by(ctx, verb, options)
	if err != nil {
		return err
	}
	t := task{doing: "carry out a verb on a schedule",
		attrs: []slog.Attr{slog.String("verb", string(verb)), slog.String("schedule", name)}}
	failed := a.engine.patiently(ctx, t, func() error {
		if err := once(by); refused == nil || *refused == nil {
			return err
		}
		return nil // an answer
	})
	if refused != nil && *refused != nil {
		return *refused
	}
	return failed
}
