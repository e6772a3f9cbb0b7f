package unread

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type visit = fsm.Visit[string, string]

var (
	Order    = fsm.Declare[string, string]("order")
	Paid     = fsm.DeclareSignal[int]("paid")
	Refused  = fsm.DeclareSignal[string]("refused")
	machine  = Order.Define(fsm.Step("start", start).To("ship"), fsm.Step("ship", ship)).Retry(fsm.RetryPolicy{})
	machines = []fsm.Definition{machine}
)

func start(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("ship", v.State, Paid).Timeout(time.Hour), nil
}

func ship(_ context.Context, v *visit) (fsm.Outcome, error) {
	if v.TimedOut() {
		return finish(v), nil
	}
	return v.Done("shipped"), nil // want `unread: machine "order" awaits Paid, and this Done deletes one that is still unread: go on at another step by Unless, or say Discard`
}

func finish(v *visit) fsm.Outcome {
	return v.Done("late").Add() // want `unread: machine "order" awaits Paid`
}

// other names one of two signals.
func other() fsm.Definition {
	m := Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.ScheduleChildren("end", v.State).Or(Paid, Refused), nil
	}), fsm.Step("end", func(_ context.Context, v *visit) (fsm.Outcome, error) {
		return v.Done(""), nil // want `unread: machine "order" awaits Refused`
	}), fsm.Step("refund", refund))
	m.Unless("refund", Paid)
	return m
}

// early ends at once in its first step, and a signal may be there already.
var early = Order.Define(fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
	if v.State == "" {
		return v.Done("nothing to do"), nil // want `unread: machine "order" awaits Refused`
	}
	return v.Await("end", v.State, Refused), nil
}), fsm.Step("end", refund))

func refund(_ context.Context, v *visit) (fsm.Outcome, error) {
	late, err := Paid.All(v)
	if len(late) == 0 {
		return nil, err
	}
	return v.Fail(err), nil
}
