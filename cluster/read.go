package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// Get reads an instance by id or key, as [engine.Engine.Get] does. [Cluster.Signal] says which keys
// of children it finds.
func (c *Cluster) Get(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	return on(ctx, c, of, engine.ErrNotFound, func(e *engine.Engine) (fsm.RawInstance, error) { return e.Get(ctx, of) })
}

// Wait is [engine.Engine.Wait] at the place of the address.
func (c *Cluster) Wait(ctx context.Context, of fsm.Target) (fsm.RawInstance, error) {
	return on(ctx, c, of, engine.ErrNotFound, func(e *engine.Engine) (fsm.RawInstance, error) { return e.Wait(ctx, of) })
}

// WaitParked is [engine.Engine.WaitParked] at the place of the address.
func (c *Cluster) WaitParked(ctx context.Context, of fsm.Target, past int64) (fsm.RawInstance, error) {
	return on(ctx, c, of, engine.ErrNotFound, func(e *engine.Engine) (fsm.RawInstance, error) { return e.WaitParked(ctx, of, past) })
}

// Counts has the numbers of instances at all places that answered.
type Counts struct {
	engine.Counts // At is the oldest of the places' times, Took the longest; Complete: every place was counted to the end

	Lacks []*PlaceError `json:"lacks,omitempty"` // the places that are not counted, and why
}

// Counts counts the instances of all places, as [engine.Engine.Counts] does at each. It lists in
// Lacks the places that do not answer within Patience, or cannot be counted in time.
//
// Errors: a *[engine.QueryError]; if no place has answered, the *[PlaceError] of each, joined.
func (c *Cluster) Counts(ctx context.Context, o engine.CountsOptions) (Counts, error) {
	answers, err := eachLong(ctx, c, c.places, func(e *engine.Engine) (engine.Counts, error) { return e.Counts(ctx, o) })
	if err != nil {
		return Counts{}, err
	}
	errs := failed(answers)
	if len(errs) == len(answers) {
		return Counts{}, errors.Join(errs...)
	}
	out := Counts{Counts: engine.Counts{Complete: len(errs) == 0}, Lacks: PlaceErrors(errors.Join(errs...))}
	sums := map[engine.Count]int64{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		out.At = earliest(out.At, a.value.At)
		out.Took = max(out.Took, a.value.Took)
		out.Complete = out.Complete && a.value.Complete
		for _, group := range a.value.Counts {
			n := group.Count
			group.Count = 0
			sums[group] += n
		}
	}
	for group, n := range sums {
		group.Count = n
		out.Counts.Counts = append(out.Counts.Counts, group)
	}
	slices.SortFunc(out.Counts.Counts, func(a, b engine.Count) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Step, b.Step),
			cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Status, b.Status))
	})
	return out, nil
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
