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

// ended leaves it to its caller what becomes of late signals.
func ended(v *visit) *fsm.EndOutcome[string] { return v.Done("") }

var helped = Order.Define(fsm.Step("start", await), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
	return ended(v).Discard(), nil
}))

func done(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }

// What these await is not known.
func parameter(sig fsm.AnySignal) fsm.Definition {
	return Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Await("end", v.State, sig), nil
	}), fsm.Step("end", done))
}

var (
	both                 = []fsm.AnySignal{Paid, Refused}
	either fsm.AnySignal = Paid
	same                 = Paid
)

var spread = Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("end", v.State, both...), nil
}), fsm.Step("end", done))

var held = Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("end", v.State, either), nil
}), fsm.Step("end", done))

// The Unless names the signal by another name than the step does.
func local() fsm.Definition {
	p := Paid
	return Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Await("end", v.State, p), nil
	}), fsm.Step("end", done), fsm.Step("refund", refund)).Unless("refund", Paid)
}

func unlessLocal() fsm.Definition {
	p := Paid
	return Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Await("end", v.State, Paid), nil
	}), fsm.Step("end", done), fsm.Step("refund", refund)).Unless("refund", p)
}

var renamed = Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("end", v.State, Paid), nil
}), fsm.Step("end", done), fsm.Step("refund", refund)).Unless("refund", same)

type signals struct{ paid fsm.Signal[int] }

func (s signals) field() fsm.Definition {
	return Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Await("end", v.State, s.paid), nil
	}), fsm.Step("end", done), fsm.Step("refund", refund)).Unless("refund", Paid)
}
