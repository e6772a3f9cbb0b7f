package engine

import (
	"context"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/work"
)

// Middleware changes, refuses or surrounds what the engine inserts, sends and runs. A nil field
// changes nothing.
type Middleware struct {
	// Insert returns the spec to go on with. It runs in the caller's goroutine, before validation; the
	// first of a list runs first. Its error refuses the whole call, as a *[InsertError] of the field
	// "middleware". The engine calls it for the children of a step as well, one by one, with the
	// step's context, in which fsm.InfoFrom names the parent; there its error is the step's, as a
	// *fsm.OutcomeError.
	Insert func(ctx context.Context, spec fsm.Spec) (fsm.Spec, error)
	// Signal returns the message to go on with. The call returns its error.
	Signal func(ctx context.Context, to fsm.Target, m fsm.Message) (fsm.Message, error)
	// Call surrounds a call of Insert, InsertMany, GetOrInsert, Signal, SignalMany or SignalOrInsert,
	// in the caller's goroutine, with the fields above and the statements inside; the first of a list
	// is the outermost. It calls run once, with a context that derives from its own and from which
	// Inject is taken, and returns run's error, or another. The children of a step do not go through
	// it.
	Call func(ctx context.Context, c *VerbCall, run func(context.Context) error) error
	// Step surrounds the execution of a step; the first of a list is the outermost. It calls run
	// once, with a context that derives from its own, and returns run's error, or another. If it
	// returns an error, the step fails and its handler is called, even if Step has not called run.
	// Handlers and the functions of InTx do not go through it. For a batch step it surrounds each
	// instance, and run returns what the one call decided for that instance.
	Step func(ctx context.Context, i fsm.Info, run func(context.Context) error) error
}

func (e *Engine) insertMiddleware(ctx context.Context, spec fsm.Spec) (fsm.Spec, error) {
	for _, m := range e.config.Middleware {
		if m.Insert == nil {
			continue
		}
		var err error
		if spec, err = m.Insert(ctx, spec); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

func (e *Engine) signalMiddleware(ctx context.Context, to fsm.Target, message fsm.Message) (fsm.Message, error) {
	for _, m := range e.config.Middleware {
		if m.Signal == nil {
			continue
		}
		var err error
		if message, err = m.Signal(ctx, to, message); err != nil {
			return message, err
		}
	}
	return message, nil
}

// childMiddleware returns insertMiddleware for the children of steps; nil if there is none.
func (e *Engine) childMiddleware() func(ctx context.Context, spec any) (any, error) {
	if !slices.ContainsFunc(e.config.Middleware, func(m Middleware) bool { return m.Insert != nil }) {
		return nil
	}
	return func(ctx context.Context, spec any) (any, error) {
		child, _ := spec.(fsm.Spec)
		return e.insertMiddleware(ctx, child)
	}
}

func (e *Engine) stepMiddleware() (around []work.Around) {
	for _, m := range e.config.Middleware {
		if m.Step != nil {
			around = append(around, m.Step)
		}
	}
	return around
}
