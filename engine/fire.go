package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

const (
	// lateness up to which an occurrence is on time: a failover or a deploy takes as long.
	lateness = time.Minute
	// fireMost bounds what one transaction fires of a schedule.
	fireMost = 100
	// dueMost bounds the schedules of one look.
	dueMost = 1000
	// aside is how long a process leaves a schedule alone that another one is firing.
	aside = 50 * time.Millisecond
	// ahead is how far a look at what is due sees.
	ahead = 2 * time.Second
)

// storeSchedules stores what the Config declares, at a time; zero: Postgres' clock.
func (e *Engine) storeSchedules(ctx context.Context, at time.Time) error {
	if len(e.schedules) == 0 {
		return nil
	}
	rows := make([]store.Schedule, len(e.schedules))
	for i := range e.schedules {
		rows[i] = e.schedules[i].Schedule
	}
	changed, err := e.store.StoreSchedules(ctx, rows, func(i int, now time.Time) time.Time {
		if !at.IsZero() {
			now = at
		}
		return e.schedules[i].when.next(now)
	})
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		e.config.Logger.LogAttrs(ctx, slog.LevelInfo, "stored schedules that are new or have changed", slog.String("schedules", strings.Join(changed, ", ")))
	}
	return nil
}

// fireDue fires the schedules that are due at a time, by Postgres' clock if it is zero, and
// returns when to look again. A schedule that cannot be fired holds up no other. Then it stores
// what Start could not store.
func (e *Engine) fireDue(ctx context.Context, at time.Time, told func(worker.FireEvent)) (wait time.Duration, err error) {
	wait, err = e.fireAll(ctx, at, told)
	if e.unstored.Load() {
		if late := e.storeDeclared(ctx, at); late != nil {
			return 0, errors.Join(err, late)
		}
		e.unstored.Store(false)
		wait = 0 // what was stored may be due
	}
	return wait, err
}

func (e *Engine) fireAll(ctx context.Context, at time.Time, told func(worker.FireEvent)) (wait time.Duration, err error) {
	ctx = context.WithValue(ctx, engineKey{}, e)
	due, err := e.store.DueSchedules(ctx, at, ahead, dueMost)
	if err != nil {
		return 0, err
	}
	wait = ahead
	var wrong []error
	for _, d := range due {
		if d.In > 0 {
			return min(wait, d.In), errors.Join(wrong...)
		}
		fired, err := e.fire(ctx, d.Name, at, told)
		if err != nil {
			wrong = append(wrong, err)
		}
		if wait = min(wait, aside); fired {
			wait = 0 // what has become due meanwhile?
		}
	}
	return wait, errors.Join(wrong...)
}

// fire reports whether there was anything to be fired.
func (e *Engine) fire(ctx context.Context, name string, at time.Time, told func(worker.FireEvent)) (bool, error) {
	var f firing
	fired, err := e.store.Fire(ctx, name, at, func(due store.Due) (store.Firing, error) {
		err := guard(func() (err error) {
			f, err = e.firing(ctx, &due)
			return err
		})
		return f.Firing, err
	})
	if err != nil {
		return false, err
	}
	inserted := 0
	for i, one := range fired {
		if one.Duplicate {
			continue // whoever was first has told of it
		}
		inserted++
		if e.soon(f.Specs[i]) {
			e.nudge(f.Specs[i].Queue)
		}
	}
	if inserted+f.missed+f.skipped > 0 {
		told(worker.FireEvent{Schedule: name, Inserted: inserted, Missed: f.missed, Skipped: f.skipped, Late: f.late})
	}
	return len(fired) > 0, nil
}

// firing is the fate of the due occurrences of a schedule.
type firing struct {
	store.Firing
	missed, skipped int           // of those that are not fired, why
	late            time.Duration // of the newest that is fired
}

// firing decides what of a due schedule is fired now.
func (e *Engine) firing(ctx context.Context, due *store.Due) (f firing, err error) {
	when, err := timed(&due.Schedule)
	if err != nil {
		return firing{}, err
	}
	list, next, dropped := when.occurrences(due)
	if dropped > 0 {
		e.config.Logger.LogAttrs(ctx, slog.LevelWarn, "occurrences of a schedule were missed, and are not caught up with", slog.String("schedule", due.Name),
			slog.Time("since", due.Next), slog.String("catch_up", due.CatchUp))
	}
	if Overlap(due.Overlap) == OverlapSkip && len(list) > 0 {
		kept := list[:1]
		if due.Live.ID != 0 {
			kept = nil
		}
		if f.skipped = len(list) - len(kept); f.skipped > 0 {
			e.config.Logger.LogAttrs(ctx, slog.LevelInfo, "skipped occurrences of a schedule: an instance of it has not ended",
				slog.String("schedule", due.Name), slog.Int("skipped", f.skipped), slog.Int64("instance", due.Live.ID))
		}
		list = kept
	}
	f.Next, f.missed = next, dropped
	for _, at := range list {
		spec, err := e.occurrence(ctx, &due.Schedule, at.Format(time.RFC3339), at, due.Clock.Sub(due.Now))
		if err != nil {
			return firing{}, err
		}
		f.Specs, f.Last, f.late = append(f.Specs, spec), at, due.Now.Sub(at)
	}
	return f, nil
}

// occurrences has the ones to fire now, oldest first, the next one, and how many were dropped, at
// least.
func (t timing) occurrences(due *store.Due) (list []time.Time, next time.Time, dropped int) {
	list, cut := t.expression.Within(due.Next.Add(-time.Nanosecond), due.Now, t.zone, MaxCatchUp) // the stored next one is due itself
	if cut {
		dropped++
	}
	if CatchUp(due.CatchUp) != CatchUpAll {
		missed := 0
		for missed < len(list) && due.Now.Sub(list[missed]) > lateness {
			missed++
		}
		if CatchUp(due.CatchUp) == CatchUpLatest && missed == len(list) && missed > 0 {
			missed--
		}
		list, dropped = list[missed:], dropped+missed
	}
	if len(list) > fireMost {
		return list[:fireMost], list[fireMost], dropped
	}
	return list, t.next(due.Now), dropped
}

// occurrence is the spec of one, after the middleware. mark tells it from the schedule's others;
// ahead is how far Postgres' clock, by which instances go, is ahead of the schedule's.
func (e *Engine) occurrence(ctx context.Context, s *store.Schedule, mark string, at time.Time, ahead time.Duration) (*step.Spec, error) {
	spec, err := hidden.Restore(s.Spec)
	if err != nil {
		return nil, err
	}
	key := "schedule:" + s.Name + ":" + mark
	spec = spec.Key(fsm.Key(key)).Scope(fsm.ScopeAll)
	if !at.IsZero() {
		spec = spec.At(at.Add(jitter(key, s.Jitter) + ahead))
	}
	erased, err := e.erase(ctx, 0, spec)
	if err != nil {
		return nil, err
	}
	if err := unruled(erased); err != nil { // by middleware: what it is to do here is not decided by a key
		return nil, err
	}
	erased.Key, erased.Scope = key, step.ScopeAll // whatever middleware makes of it: it is what makes an occurrence happen once
	return erased, nil
}

// jitter is the same whenever an occurrence is fired.
func jitter(key string, most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	h := sha256.Sum256([]byte(key))
	n := binary.BigEndian.Uint64(h[:])
	return time.Duration(n%uint64(most.Microseconds()+1)) * time.Microsecond //nolint:gosec // at most a day
}

// guard runs a function that calls the host's code on a separate goroutine, which runtime.Goexit
// may end. The error that it returns has only the text of f's error: it goes through the engine's
// loops, where methods of the host's error could panic.
func guard(f func() error) error {
	return guarded(f, func(err error) error { return errors.New(step.SanitizeError(err)) })
}

// guardCaller is guard for a call whose caller gets the error. It returns f's own, unless that
// panics when it is looked at.
func guardCaller(f func() error) error {
	return guarded(f, func(err error) error {
		_, _ = err.Error(), errors.Is(err, errNobodys)
		return err
	})
}

// errNobodys is in no error. To look for it is to look at all of them.
var errNobodys = errors.New("the error of no function")

// guarded runs f on a separate goroutine, and there looks at the error that f returns.
func guarded(f func() error, look func(error) error) error {
	over := make(chan error, 1)
	go func() {
		returned := false
		defer func() {
			if p := recover(); p != nil {
				over <- fmt.Errorf("%s\n%s", step.SanitizeError(&fsm.PanicError{Value: p}), debug.Stack())
			} else if !returned {
				over <- errors.New("runtime.Goexit was called")
			}
		}()
		err := f()
		if err != nil {
			err = look(err)
		}
		returned = true
		over <- err
	}()
	return <-over
}
