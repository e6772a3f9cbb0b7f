package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// Get reads an instance by id or by correlation key; fsm.Machine has the typed form. By a key it
// finds the instance that occupies it or, while none does, the newest that had it and has ended:
// its Status tells. Verbs, signals and Wait find only the occupant.
//
// A transient fault of Postgres is repeated until ctx ends, as by all verbs and reads of the
// engine: give ctx a deadline.
//
// Errors: ErrNotFound.
func (e *Engine) Get(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	return e.everything().find(ctx, of)
}

// everything is what a caller sees who is not bound.
func (e *Engine) everything() scope { return scope{engine: e} }

// get reads the instance at an address.
func (e *Engine) get(ctx context.Context, at store.Address) (i fsm.RawInstance, err error) {
	err = e.patiently(ctx, task{doing: "read an instance"}, func() error {
		i, err = e.reads.Get(ctx, at)
		return err
	})
	return i, err
}

// Wait blocks until an instance has ended, by id or by the correlation key that it occupies at the
// call; fsm.Machine has the typed form. It needs no Start. It notices an end in this process at
// once, and one elsewhere within a second: one statement looks for all waiting calls.
//
// Errors: ErrNotFound if there is no such instance, or no longer; ErrStopped if the engine is
// stopped; the cause of ctx's end.
func (e *Engine) Wait(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	for {
		i, err := e.everything().occupant(ctx, of)
		if err != nil || i.Status.Terminal() {
			return i, err
		}
		of = i.ID // whoever has the key later is another
		if err := e.waiters.wait(ctx, int64(i.ID)); err != nil {
			return fsm.RawInstance{}, fmt.Errorf("wait for instance %d: %w", i.ID, err)
		}
	}
}

// WaitParked is Wait that also returns when the instance is parked: it awaits a signal or its
// children, at a visit after past (-1: at any visit; the visit of the instance which the last call
// has returned: at a later one). So a caller sees each stage of an instance that works between
// signals, with the state that it has parked with, and does not see again the one that it has
// acted on; fsm.Machine has the typed form. It notices a park in this process at once, and one
// elsewhere within a second. An instance that goes on at once, since what it awaits is there
// already, may have parked unseen.
//
// Errors: as Wait.
func (e *Engine) WaitParked(ctx context.Context, of fsm.Target, past int64) (fsm.RawInstance, error) {
	for {
		i, err := e.everything().occupant(ctx, of)
		if err != nil || i.Status.Terminal() || parked(i.Status) && i.Visit > past {
			return i, err
		}
		of = i.ID
		if err := e.parks.wait(ctx, rest{id: int64(i.ID), past: past}); err != nil {
			return fsm.RawInstance{}, fmt.Errorf("wait until instance %d is parked: %w", i.ID, err)
		}
	}
}

func parked(s fsm.Status) bool {
	return s == fsm.StatusAwaitingSignal || s == fsm.StatusAwaitingChildren
}

// rest is what a caller of WaitParked waits for: that the instance has ended, or is parked at a
// visit after past.
type rest struct{ id, past int64 }

// resting returns the keys that need not wait any longer.
func (e *Engine) resting(ctx context.Context, keys []rest) (over []rest, err error) {
	ids, past := make([]int64, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		ids[i], past[i] = k.id, k.past
	}
	found, err := e.store.Resting(ctx, ids, past)
	for _, i := range found {
		over = append(over, keys[i])
	}
	return over, err
}

// ended wakes the callers that wait for these instances to end.
func (e *Engine) ended(ids []int64) {
	e.waiters.ended(ids)
	e.parked(ids)
}

// parked wakes the callers that wait for these instances to park or to end. Each looks again, since
// the outcome may not have parked its instance after all.
func (e *Engine) parked(ids []int64) {
	e.parks.some(func(k rest) bool { return slices.Contains(ids, k.id) })
}

// archive returns the function that reads instances for Config.Archive, or nil without an archive.
func (e *Engine) archive() func(ctx context.Context, ids []int64) error {
	take := e.config.Archive
	if take == nil {
		return nil
	}
	return func(ctx context.Context, ids []int64) error {
		ended, err := e.reads.GetMany(ctx, ids)
		if err != nil || len(ended) == 0 {
			return err
		}
		return take(ctx, ended)
	}
}

// Definition returns a definition of Config.Machines, and nil if there is none of this name and
// version. Typed reads convert older states by it.
func (e *Engine) Definition(machine string, version int) fsm.Definition {
	if m := e.env.Machine(machine, version); m != nil {
		return hidden.Definition(func() *step.Machine { return m })
	}
	return nil
}

var _ fsm.Definer = (*Engine)(nil)
