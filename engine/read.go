package engine

import (
	"context"
	"fmt"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/signal"
)

// Get reads an instance by id or by the correlation key that it occupies; fsm.Machine has the typed
// form. An instance that has left the scope of its key is found by id alone.
//
// A transient fault of Postgres is repeated until ctx ends, as by all verbs and reads of the
// engine: give ctx a deadline.
//
// Errors: ErrNotFound.
func (e *Engine) Get(ctx context.Context, of fsm.Target) (i fsm.RawInstance, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	address, err := signal.Resolve(of)
	if err != nil {
		return fsm.RawInstance{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return e.get(ctx, address)
}

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
		i, err := e.Get(ctx, of)
		if err != nil || i.Status.Terminal() {
			return i, err
		}
		of = i.ID // whoever has the key later is another
		if err := e.waiters.wait(ctx, int64(i.ID)); err != nil {
			return fsm.RawInstance{}, fmt.Errorf("wait for instance %d: %w", i.ID, err)
		}
	}
}
