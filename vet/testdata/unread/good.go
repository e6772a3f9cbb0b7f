package unread

import (
	"context"

	"github.com/gendurable/gendurable/fsm"
)

func await(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("end", v.State, Paid, Refused), nil
}

// Each decides in another way.
var (
	all = Order.Define(fsm.Step("start", await), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Done(""), nil
	}), fsm.Step("refund", refund)).Unless("refund", Paid, Refused)

	own = Order.Define(fsm.Step("start", await), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		if v.TimedOut() {
			return v.Done("").Discard(), nil
		}
		return v.Done("").Unless("refund", Paid).With(v.State), nil
	}), fsm.Step("refund", refund))

	fails = Order.Define(fsm.Step("start", await), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Fail(nil), nil // deletes nothing
	}))

	awaitsNothing = Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }))
)

// Others may add what is missing.
func defined() *fsm.Defined[string, string] {
	return Order.Define(fsm.Step("start", await), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Done(""), nil
	}))
}

// The outcome is changed before the step returns it.
func later() fsm.Definition {
	return Order.Define(fsm.Step("start", await), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		out := v.Done("")
		if v.State != "" {
			out = out.Discard()
		}
		return out, nil
	}))
}

func named(signals ...fsm.AnySignal) fsm.Definition {
	return Order.Define(fsm.Step("start", await), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Done(""), nil
	}), fsm.Step("refund", refund)).Unless("refund", signals...)
}
