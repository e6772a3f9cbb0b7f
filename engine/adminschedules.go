package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// The names by which a *[VerbError] of the verbs on schedules goes.
const (
	VerbPauseSchedule  Verb = "pause_schedule"
	VerbResumeSchedule Verb = "resume_schedule"
	VerbRunSchedule    Verb = "run_schedule"
	VerbDeleteSchedule Verb = "delete_schedule"
)

// StoredSchedule is a schedule as it is in force.
type StoredSchedule struct {
	Name       string
	Expression string // as given to Cron; of Every "@every" and the interval
	Zone       string
	CatchUp    CatchUp
	Overlap    Overlap
	Jitter     time.Duration
	Machine    string
	Version    int
	Queue      string
	Next       time.Time // the occurrence that comes next; if it has passed, it is due
	Last       time.Time // the newest occurrence that was fired; zero: none
	Instance   fsm.ID    // the newest instance, also of RunSchedule; it may have been collected. 0: none
	Paused     time.Time // since when; zero: it is not
}

// Schedules lists the stored schedules, by name.
func (a *Admin) Schedules(ctx context.Context) ([]StoredSchedule, error) {
	rows, err := a.engine.store.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]StoredSchedule, len(rows))
	for i, s := range rows {
		list[i] = StoredSchedule{Name: s.Name, Expression: s.Expression, Zone: s.TimeZone, CatchUp: CatchUp(s.CatchUp), Overlap: Overlap(s.Overlap),
			Jitter: s.Jitter, Machine: s.Spec.Machine, Version: s.Spec.Version, Queue: s.Spec.Queue, Next: s.Next, Last: s.Last,
			Instance: fsm.ID(s.Instance), Paused: s.Paused}
	}
	return list, nil
}

// PauseSchedule keeps every process from firing a schedule until ResumeSchedule, across restarts and deploys, and reports whether it was not
// paused before. What it has inserted goes on.
//
// Errors: ErrNoSchedule; a *[VerbError]; ErrUnknown where the COMMIT got no answer: call again.
func (a *Admin) PauseSchedule(ctx context.Context, name string) (changed bool, err error) {
	return a.pauseSchedule(ctx, VerbPauseSchedule, name)
}

// ResumeSchedule ends a PauseSchedule, and reports whether there was one. With what passed meanwhile it goes by the schedule's CatchUp. Errors:
// as of PauseSchedule.
func (a *Admin) ResumeSchedule(ctx context.Context, name string) (changed bool, err error) {
	return a.pauseSchedule(ctx, VerbResumeSchedule, name)
}

func (a *Admin) pauseSchedule(ctx context.Context, verb Verb, name string) (changed bool, err error) {
	err = a.onSchedule(ctx, verb, name, func() (err error) {
		changed, err = a.engine.store.PauseSchedule(ctx, name, verb == VerbPauseSchedule)
		return err
	}, nil)
	return changed, err
}

// RunSchedule inserts an instance of a schedule now, paused or not, beside its occurrences: neither Next nor Last changes. Under OverlapSkip it
// is refused while the newest instance has not ended.
//
// Errors: ErrNoSchedule; a *[ConflictError] with that instance; a *[VerbError]; a *[SpecError] of middleware; ErrUnknown where the COMMIT got no
// answer: look at Schedules, and call again.
func (a *Admin) RunSchedule(ctx context.Context, name string) (fsm.ID, error) {
	var fired []store.Inserted
	var spec *step.Spec
	var refused error
	mark := "run:" + uuid.NewString()
	err := a.onSchedule(ctx, VerbRunSchedule, name, func() (err error) {
		fired, err = a.engine.store.RunSchedule(ctx, name, func(due store.Due) (store.Firing, error) {
			if Overlap(due.Overlap) == OverlapSkip && due.Live.ID != 0 {
				refused = &ConflictError{Verb: VerbRunSchedule, ID: fsm.ID(due.Live.ID), Status: fsm.Status(due.Live.Status),
					Err: errors.New("instances of this schedule must not overlap")}
			} else {
				spec, refused = a.engine.occurrence(ctx, &due.Schedule, mark, time.Time{}, 0)
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

// DeleteSchedule removes a schedule, and leaves its instances. A process that still declares it stores it again when it starts: take it out of
// the code first. Errors: as of PauseSchedule.
func (a *Admin) DeleteSchedule(ctx context.Context, name string) error {
	return a.onSchedule(ctx, VerbDeleteSchedule, name, func() error { return a.engine.store.DeleteSchedule(ctx, name) }, nil)
}

// onSchedule repeats a verb on transient faults until ctx ends, as the other verbs do, but not what was refused, which no error of Postgres is.
func (a *Admin) onSchedule(ctx context.Context, verb Verb, name string, once func() error, refused *error) error {
	if err := checkName(name, MaxScheduleNameBytes); err != nil {
		return &VerbError{verb, "name", err}
	}
	for n := 1; ; n++ {
		err := once()
		if err == nil || refused != nil && *refused != nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrNoSchedule) ||
			store.Classify(err) != store.FaultTransient {
			return err
		}
		if !pause(ctx, n) {
			return fmt.Errorf("%w; given up after %d attempts: %w", err, n, context.Cause(ctx))
		}
	}
}
