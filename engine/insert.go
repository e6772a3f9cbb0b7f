package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// Inserted is the new instance, or with Duplicate the occupant of its key.
type Inserted struct {
	ID        fsm.ID
	Duplicate bool
}

// Insert inserts an instance and returns its id. Its machine need not be registered here.
//
// Errors: a *[DuplicateError] if its key is occupied, a *[SpecError] if the spec is wrong, which wraps ErrTooLarge for a state over the
// limit.
func (e *Engine) Insert(ctx context.Context, spec fsm.Spec) (fsm.ID, error) {
	erased, err := e.erase(ctx, 0, spec)
	if err != nil {
		return 0, err
	}
	done, err := e.insert(ctx, erased)
	if err != nil {
		return 0, err
	}
	if done[0].Duplicate {
		return 0, &DuplicateError{Key: fsm.Key(erased.Key), Occupant: done[0].ID}
	}
	return done[0].ID, nil
}

// InsertMany inserts any number of instances, of Limits.OutcomeBytes together, in one transaction and returns what became of each, in input
// order. An occupied key is no error but a Duplicate; of two equal keys the first wins. A spec that is wrong, or one too many, refuses the
// whole call with a *[SpecError] before anything is sent.
func (e *Engine) InsertMany(ctx context.Context, specs []fsm.Spec) ([]Inserted, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	erased := make([]*step.Spec, len(specs))
	size := 0
	for i, spec := range specs {
		var err error
		if erased[i], err = e.erase(ctx, i, spec); err != nil {
			return nil, err
		}
		if size += erased[i].Bytes(); size > e.env.Limits.OutcomeBytes {
			return nil, &SpecError{Index: i, Field: "state", Err: fmt.Errorf("over %d bytes together with those before it: %w",
				e.env.Limits.OutcomeBytes, ErrTooLarge)}
		}
	}
	return e.insert(ctx, erased...)
}

// GetOrInsert inserts an instance unless its key is occupied, and says which. The key is required, in any scope but fsm.ScopeNone.
//
// Errors: a *[SpecError] if the spec is wrong.
func (e *Engine) GetOrInsert(ctx context.Context, spec fsm.Spec) (Inserted, error) {
	erased, err := e.erase(ctx, 0, spec)
	if err != nil {
		return Inserted{}, err
	}
	switch {
	case erased.Key == "":
		return Inserted{}, &SpecError{Field: "key", Err: errors.New("none: GetOrInsert finds an instance by its key")}
	case erased.Scope == step.ScopeNone:
		return Inserted{}, &SpecError{Field: "scope", Err: errors.New("ScopeNone: such a key is never occupied")}
	}
	done, err := e.insert(ctx, erased)
	if err != nil {
		return Inserted{}, err
	}
	return done[0], nil
}

// erase sends the i-th spec of a call through middleware and validation.
func (e *Engine) erase(ctx context.Context, i int, spec fsm.Spec) (*step.Spec, error) {
	spec, err := e.insertMiddleware(ctx, spec)
	if err != nil {
		return nil, &SpecError{Index: i, Field: "middleware", Err: err}
	}
	erased, err := spec.Erase(e.env)
	if wrong, ok := errors.AsType[*fsm.SpecError](err); ok {
		return nil, &SpecError{Index: i, Field: wrong.Field, Err: wrong.Err}
	}
	return erased, err
}

func (e *Engine) insert(ctx context.Context, specs ...*step.Spec) ([]Inserted, error) {
	rows, err := e.store.Insert(ctx, specs)
	if err != nil {
		return nil, err
	}
	done := make([]Inserted, len(rows))
	fresh := map[string]bool{}
	for i, row := range rows {
		done[i] = Inserted{ID: fsm.ID(row.ID), Duplicate: row.Duplicate}
		if !row.Duplicate && e.soon(specs[i]) {
			fresh[specs[i].Queue] = true
		}
	}
	for queue := range fresh {
		e.nudge(queue)
	}
	return done, nil
}

// soon: due before the scheduler of its queue would look again by itself.
func (e *Engine) soon(spec *step.Spec) bool {
	delay := spec.Delay
	if !spec.At.IsZero() {
		delay = time.Until(spec.At)
	}
	return delay <= e.config.Queues[spec.Queue].PollMax
}
