package engine

import (
	"context"

	"github.com/gendurable/gendurable/fsm"
)

// Middleware changes or refuses what passes through an engine's verbs; nil fields let pass. It runs in the caller's goroutine, before
// validation; the first of a list runs first. Children of a step do not pass: the step itself made them.
type Middleware struct {
	// Insert returns the spec to go on with. Its error refuses the whole call, as a *[SpecError] of the field "middleware".
	Insert func(ctx context.Context, spec fsm.Spec) (fsm.Spec, error)
	// Signal returns the message to go on with. Its error is returned by the call.
	Signal func(ctx context.Context, to fsm.Target, m fsm.Message) (fsm.Message, error)
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
