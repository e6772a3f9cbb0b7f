package cluster

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Admin has the operator's verbs for all places. A verb for one instance goes to the instance's
// place, which it finds by id or by key as [Cluster.Signal] does. A verb for a schedule goes to the
// place of the schedule's name. Verbs for queues and gates go to all places. For everything else,
// e.g. the audit, use the Admin of each place: see [Cluster.Engine].
type Admin struct{ cluster *Cluster }

// Admin returns the operator's verbs of this cluster.
func (c *Cluster) Admin() *Admin { return &Admin{c} }

// one calls a verb of the engine at an address.
func one[T any](ctx context.Context, a *Admin, t fsm.Target, verb func(*engine.Admin) (T, error)) (T, error) {
	return on(ctx, a.cluster, t, engine.ErrNotFound, func(e *engine.Engine) (T, error) { return verb(e.Admin()) })
}

// named calls a verb of the engine at the place of a schedule's name.
func named[T any](ctx context.Context, a *Admin, name string, verb func(*engine.Admin) (T, error)) (T, error) {
	return in(ctx, a.cluster.places[a.cluster.PlaceOf(name)], func(e *engine.Engine) (T, error) { return verb(e.Admin()) })
}

// Cancel is [engine.Admin.Cancel] at the instance's place.
func (a *Admin) Cancel(ctx context.Context, t fsm.Target, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Cancel(ctx, t, options...) })
}

// Retry is [engine.Admin.Retry] at the instance's place.
func (a *Admin) Retry(ctx context.Context, t fsm.Target, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Retry(ctx, t, options...) })
}

// Restart is [engine.Admin.Restart] at the instance's place.
func (a *Admin) Restart(ctx context.Context, t fsm.Target, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Restart(ctx, t, options...) })
}

// RunNow is [engine.Admin.RunNow] at the instance's place.
func (a *Admin) RunNow(ctx context.Context, t fsm.Target, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.RunNow(ctx, t, options...) })
}

// Reschedule is [engine.Admin.Reschedule] at the instance's place.
func (a *Admin) Reschedule(ctx context.Context, t fsm.Target, when time.Time, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Reschedule(ctx, t, when, options...) })
}

// Pause is [engine.Admin.Pause] at the instance's place.
func (a *Admin) Pause(ctx context.Context, t fsm.Target, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Pause(ctx, t, options...) })
}

// Resume is [engine.Admin.Resume] at the instance's place.
func (a *Admin) Resume(ctx context.Context, t fsm.Target, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Resume(ctx, t, options...) })
}

// Edit is [engine.Admin.Edit] at the instance's place.
func (a *Admin) Edit(ctx context.Context, t fsm.Target, change fsm.Change, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Edit(ctx, t, change, options...) })
}

// Rewind is [engine.Admin.Rewind] at the instance's place.
func (a *Admin) Rewind(ctx context.Context, t fsm.Target, step string, change fsm.Change, options ...engine.VerbOption) (engine.Changed, error) {
	return one(ctx, a, t, func(at *engine.Admin) (engine.Changed, error) { return at.Rewind(ctx, t, step, change, options...) })
}

// Why is [engine.Admin.Why] at the instance's place.
func (a *Admin) Why(ctx context.Context, of fsm.Target) ([]engine.Cause, error) {
	return one(ctx, a, of, func(at *engine.Admin) ([]engine.Cause, error) { return at.Why(ctx, of) })
}

// PauseSchedule is [engine.Admin.PauseSchedule] at the schedule's place.
func (a *Admin) PauseSchedule(ctx context.Context, name string, options ...engine.VerbOption) (changed bool, err error) {
	return named(ctx, a, name, func(at *engine.Admin) (bool, error) { return at.PauseSchedule(ctx, name, options...) })
}

// ResumeSchedule is [engine.Admin.ResumeSchedule] at the schedule's place.
func (a *Admin) ResumeSchedule(ctx context.Context, name string, options ...engine.VerbOption) (changed bool, err error) {
	return named(ctx, a, name, func(at *engine.Admin) (bool, error) { return at.ResumeSchedule(ctx, name, options...) })
}

// RunSchedule is [engine.Admin.RunSchedule] at the schedule's place.
func (a *Admin) RunSchedule(ctx context.Context, name string, options ...engine.VerbOption) (fsm.ID, error) {
	return named(ctx, a, name, func(at *engine.Admin) (fsm.ID, error) { return at.RunSchedule(ctx, name, options...) })
}

// DeleteSchedule is [engine.Admin.DeleteSchedule] at the schedule's place.
func (a *Admin) DeleteSchedule(ctx context.Context, name string, options ...engine.VerbOption) error {
	_, err := named(ctx, a, name, func(at *engine.Admin) (struct{}, error) { return struct{}{}, at.DeleteSchedule(ctx, name, options...) })
	return err
}

// AllSchedules yields the schedules of all places: place after place, and by name within each.
// Where a place fails, it yields the error with the zero schedule, and goes on with the next place.
func (a *Admin) AllSchedules(ctx context.Context) iter.Seq2[engine.StoredSchedule, error] {
	return func(yield func(engine.StoredSchedule, error) bool) {
		for _, p := range a.cluster.places {
			if !p.schedules(ctx, a.cluster.patience, yield) {
				return
			}
		}
	}
}

func (p *place) schedules(ctx context.Context, patience time.Duration, yield func(engine.StoredSchedule, error) bool) bool {
	q := engine.ScheduleQuery{Limit: allLimit}
	for {
		impatient, cancel := context.WithTimeout(ctx, patience)
		page, err := in(impatient, p, func(e *engine.Engine) (engine.SchedulePage, error) { return e.Admin().Schedules(impatient, q) })
		cancel()
		if err != nil {
			return yield(engine.StoredSchedule{}, err)
		}
		for _, s := range page.Schedules {
			if !yield(s, nil) {
				return false
			}
		}
		if q.After = page.Next; q.After == "" {
			return true
		}
	}
}

// PauseQueue is [engine.Admin.PauseQueue] at all places, and reports whether it changed any. A
// place that does not answer within Patience goes on claiming from the queue; call PauseQueue again
// to pause it there.
//
// Errors: the *[PlaceError] of each place that failed, joined.
func (a *Admin) PauseQueue(ctx context.Context, queue string, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) {
		return at.PauseQueue(ctx, queue, options...)
	})
}

// ResumeQueue is [engine.Admin.ResumeQueue] at all places, and reports whether it changed any. It
// returns the errors of PauseQueue.
func (a *Admin) ResumeQueue(ctx context.Context, queue string, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) {
		return at.ResumeQueue(ctx, queue, options...)
	})
}

func (a *Admin) everywhere(ctx context.Context, verb func(context.Context, *engine.Admin) (bool, error)) (changed bool, err error) {
	answers, err := each(ctx, a.cluster, a.cluster.places, func(ctx context.Context, p *place) (bool, error) { return verb(ctx, p.engine.Admin()) })
	if err != nil {
		return false, err
	}
	changed = slices.ContainsFunc(answers, func(at answer[bool]) bool { return at.value && at.err == nil })
	return changed, errors.Join(failed(answers)...)
}
