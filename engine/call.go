package engine

import (
	"context"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/around"
)

// VerbCall is a call of one of the verbs that insert and signal, as [Middleware.Call] sees it.
type VerbCall struct {
	Verb    string     // "insert", "insert_many", "get_or_insert", "signal", "signal_many" or "signal_or_insert"
	Machine string     // of the spec, the first of many; "": a signal
	Specs   int        // how many
	Signal  string     // its name, the first of many; "": none
	Signals int        // how many of signal_many; else 0
	To      fsm.Target // of a signal; nil: of none, of many, or of the one that occupies the spec's key
	// IDs are the instances that were inserted or sent to, or that occupy the key, once run has
	// returned. Nil after an error.
	IDs []fsm.ID
}

// around runs a call within the middleware.
func (w writer) around(ctx context.Context, describe func() VerbCall, do func(context.Context) ([]fsm.ID, error)) error {
	if within := w.sender.Once; !within { // a host's transaction has a role of its own, and is over when it is refused something
		once := do
		do = func(ctx context.Context) (ids []fsm.ID, err error) {
			defer w.engine.explain(ctx, toWrite, &err)
			return once(ctx)
		}
	}
	if !w.engine.surrounded {
		_, err := do(ctx)
		return err
	}
	call := describe()
	var failed error
	run := func(ctx context.Context) error {
		ids, err := do(ctx)
		if failed = err; err == nil {
			call.IDs = ids
		}
		return err
	}
	enter := func(ctx context.Context, m Middleware, run func(context.Context) error) error {
		if m.Call == nil {
			return run(ctx)
		}
		return m.Call(ctx, &call, run)
	}
	if err := around.Run(ctx, "call", w.engine.config.Middleware, enter, run); err != nil {
		return err
	}
	return failed // also where the middleware swallowed it: there is no id to return
}

func describeInsert(verb string, specs ...fsm.Spec) func() VerbCall {
	return func() VerbCall { return VerbCall{Verb: verb, Machine: specs[0].Options().Machine, Specs: len(specs)} }
}

func idsOf(done ...Inserted) []fsm.ID {
	ids := make([]fsm.ID, len(done))
	for i, one := range done {
		ids[i] = one.ID
	}
	return ids
}
