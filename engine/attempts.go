package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/store"
)

// Errors reads the errors of an instance's attempts, the oldest first: the newest 20, by id or by
// correlation key, as [Engine.Get] finds it. None where all went well. Lists do not carry them.
//
// Errors: ErrNotFound.
func (e *Engine) Errors(ctx context.Context, of fsm.Target) (list []fsm.AttemptError, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	address, err := send.Resolve(of)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	read := func() error {
		list, err = e.reads.Errors(ctx, address)
		return err
	}
	t := task{doing: "read the errors of an instance"}
	if err = e.patiently(ctx, t, read); address.Key == "" || !errors.Is(err, ErrNotFound) {
		return list, err
	}
	ended, err := e.Get(ctx, of)
	if err != nil {
		return nil, err
	}
	address = store.Address{ID: int64(ended.ID)}
	err = e.patiently(ctx, t, read)
	return list, err
}

// Repeats returns how many runs of an instance's current visit had no outcome: their process was
// lost, or the engine cut them off. It reads the row alone.
func Repeats(row *ent.Instance) (runs int) {
	runs = int(row.Crashes)
	for _, e := range ErrorsIn(row) {
		if e.Kind == fsm.AttemptReleased && e.Visit == row.Visit {
			runs += e.Times
		}
	}
	return runs
}

// ErrorsIn returns what [Engine.Errors] does, of an instance that was read by the ent client: it
// sends nothing.
func ErrorsIn(row *ent.Instance) []fsm.AttemptError { return query.ErrorsIn(row.Errors) }
