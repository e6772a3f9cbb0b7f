package steps

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type Order struct{ Cents int }

var (
	Checkout = fsm.Declare[Order, string]("checkout")
	Paid     = fsm.DeclareSignal[int]("paid")
)

type visit = fsm.Visit[Order, string]

func definition() fsm.Definition {
	return Checkout.Define(
		fsm.Step("start", start).To("paid"),
		fsm.Step("paid", paid).To("ship", "refnud"), // want `steps: To: machine "checkout" has no step "refnud", only "start", "paid", "ship", "refund", "late"`
		fsm.Step("ship", ship).To(),
		fsm.Step("refund", refund).To(), // want `steps: no way leads to step "refund" of machine "checkout" from its first one, "start"`
		fsm.Step("late", late).To(),
	).OnError(failed).Unless("latest", Paid) // want `steps: Unless: machine "checkout" has no step "latest"`
}

func start(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Await("payed", v.State, Paid).Timeout(time.Hour), nil // want `steps: machine "checkout" has no step "payed"`
}

func paid(_ context.Context, v *visit) (fsm.Outcome, error) {
	if v.TimedOut() {
		return onward(v), nil
	}
	return v.ScheduleChildren("late", v.State), nil // want `steps: step "paid" of machine "checkout" has a To without "late"`
}

// onward is a function that a step calls.
func onward(v *visit) fsm.Outcome {
	return v.Next("shipp", v.State) // want `steps: machine "checkout" has no step "shipp"`
}

func ship(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Done("shipped").Unless("lates", Paid), nil // want `steps: machine "checkout" has no step "lates"`
}

func refund(_ context.Context, v *visit) (fsm.Outcome, error) {
	return v.Fail(errors.New("refunded")).Unless("late", Paid), nil
}

func late(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done("late"), nil }

func failed(_ context.Context, v *visit, err error) (fsm.Outcome, error) {
	if v.Attempt > 3 {
		return v.Next("late", v.State), nil // want `steps: no step of machine "checkout" has a To with "late", so its handler cannot lead there`
	}
	return v.RetryBy(fsm.RetryPolicy{}, err), nil
}

func spec() fsm.Spec { return Checkout.New(Order{}).Key("k").Step("begin") } // want `steps: machine "checkout" has no step "begin"`

var Nameless = fsm.Declare[Order, string]("nameless", fsm.Version(2), fsm.Initial("first"))

var Keyed = fsm.Declare[Order, string]("keyed", fsm.KeyFromState(), fsm.Initial("first"))

var KeyedBy = fsm.Declare[Order, string]("keyed by", fsm.KeyBy(func(Order) fsm.Key { return "k" }), fsm.KeyScope(fsm.ScopeAll), fsm.Initial("first"))

func keyed() []fsm.Definition {
	return []fsm.Definition{
		Keyed.Define( // want `steps: machine "keyed" begins at step "first", which it does not have`
			fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }),
		),
		KeyedBy.Define( // want `steps: machine "keyed by" begins at step "first", which it does not have`
			fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }),
		),
	}
}

// Without To a step may lead everywhere. But all code of these is here, and none of it leads to
// "forgotten".
func nameless() fsm.Definition {
	return Nameless.Define( // want `steps: machine "nameless" begins at step "first", which it does not have`
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }),
	)
}

var Open = fsm.Declare[Order, string]("open")

func open() fsm.Definition {
	return Open.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) {
			return v.Next("second", v.State), nil
		}),
		fsm.Step("second", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Rejoin("start", v.State), nil }),
		fsm.Step("forgotten", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }), // want `steps: no way leads to step "forgotten" of machine "open"`
	).Retry(fsm.RetryPolicy{})
}

var Helped = fsm.Declare[Order, string]("helped")

func helped() fsm.Definition {
	return Helped.Define(
		fsm.Step("start", func(_ context.Context, v *visit) (fsm.Outcome, error) { return Later(v), nil }).To("second"),
		fsm.Step("second", func(_ context.Context, v *visit) (fsm.Outcome, error) { return v.Done(""), nil }).To(),
	)
}

// Later is a helper, which another package may call, too, with a visit of an Order.
func Later(v *visit) fsm.Outcome {
	if v.Attempt > 3 {
		return v.Next("second", v.State)
	}
	return v.Next("secnd", v.State) // want `steps: machine "helped" has no step "secnd", only "start", "second"`
}
