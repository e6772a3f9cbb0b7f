package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// TripV1 is the state of version 1 of a trip. Its JSON decodes into the state of version 2, and
// loses the amount.
type TripV1 struct {
	Cents int // one more for each step that it went
	Left  int // steps to go
}

// Trip is the state of version 2.
type Trip struct {
	Amount   int
	Left     int
	Currency string
}

// Both sides of the test know these machines.
var (
	Depart = fsm.DeclareSignal[int]("depart")

	Trip1  = fsm.Declare[TripV1, string]("trip", fsm.Version(1))
	Trip2  = fsm.Declare[Trip, string]("trip", fsm.Version(2))
	Errand = fsm.Declare[int, string]("errand")
)

// Price is the result of a trip of either version: the paid amount, with all steps on its way.
func Price(paid int) string { return fmt.Sprint(paid, " EUR") }

// tripOne goes as many steps as it has left, waits, and settles the payment. Some steps end the
// claim and some keep it.
func (t Traces) tripOne() fsm.Definition {
	return Trip1.Define(
		fsm.Step("start", traced(t, func(_ context.Context, v *fsm.Visit[TripV1, string]) (fsm.Outcome, error) {
			if v.State.Left == 0 {
				return v.Await("wait", v.State, Depart), nil
			}
			v.State.Left--
			v.State.Cents++
			return v.Next("start", v.State).After(time.Duration(v.State.Left%2) * 20 * time.Millisecond), nil
		})),
		fsm.Step("wait", traced(t, func(_ context.Context, v *fsm.Visit[TripV1, string]) (fsm.Outcome, error) {
			v.State.Cents += len(v.Awaited())
			return v.Next("settle_payment", v.State).After(time.Millisecond), nil
		})),
		fsm.Step("settle_payment", traced(t, func(_ context.Context, v *fsm.Visit[TripV1, string]) (fsm.Outcome, error) {
			return v.Done(Price(v.State.Cents)).Discard(), nil
		})),
	).OnError(failedOf[TripV1](t))
}

// tripTwo has another state, one step renamed and one more.
func (t Traces) tripTwo() fsm.Definition {
	return Trip2.Define(
		fsm.Step("start", traced(t, func(_ context.Context, v *fsm.Visit[Trip, string]) (fsm.Outcome, error) {
			if v.State.Left == 0 {
				return v.Await("wait", v.State, Depart), nil
			}
			v.State.Left--
			v.State.Amount++
			return v.Next("start", v.State).After(time.Duration(v.State.Left%2) * 20 * time.Millisecond), nil
		})),
		fsm.Step("wait", traced(t, func(_ context.Context, v *fsm.Visit[Trip, string]) (fsm.Outcome, error) {
			v.State.Amount += len(v.Awaited())
			return v.Next("settle", v.State).After(time.Millisecond), nil
		})),
		fsm.Step("settle", traced(t, func(_ context.Context, v *fsm.Visit[Trip, string]) (fsm.Outcome, error) {
			return v.Next("thank", v.State), nil
		})),
		fsm.Step("thank", traced(t, func(_ context.Context, v *fsm.Visit[Trip, string]) (fsm.Outcome, error) {
			return v.Done(fmt.Sprint(v.State.Amount, " ", v.State.Currency)).Discard(), nil
		})),
	).From(fsm.Migrate(Trip1, Trip2, func(o TripV1) (Trip, error) { return Trip{o.Cents, o.Left, "EUR"}, nil },
		fsm.StepNames{"start": "start", "wait": "wait", "settle_payment": "settle"})).OnError(failedOf[Trip](t))
}

// errand has a step more in the newer build, without a new version.
func (t Traces) errand(inspected bool) fsm.Definition {
	run := traced(t, func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
		if inspected {
			return v.Next("inspect", v.State+1).After(time.Millisecond), nil
		}
		return v.Next("end", v.State+1).After(time.Millisecond), nil
	})
	inspect := traced(t, func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
		return v.Next("end", v.State).After(time.Millisecond), nil
	})
	end := traced(t, func(_ context.Context, v *fsm.Visit[int, string]) (fsm.Outcome, error) {
		return v.Done(fmt.Sprint(v.State)), nil
	})
	steps := []fsm.StepDef[int, string]{fsm.Step("start", run), fsm.Step("end", end)}
	if inspected {
		steps = append(steps, fsm.Step("inspect", inspect))
	}
	return Errand.Define(steps...).OnError(failedOf[int](t))
}

// failedOf is the error handler of machines with any state.
func failedOf[S any](t Traces) func(context.Context, *fsm.Visit[S, string], error) (fsm.Outcome, error) {
	return func(ctx context.Context, v *fsm.Visit[S, string], err error) (fsm.Outcome, error) {
		return v.Fail(err), t.write(context.WithoutCancel(ctx), v.Info, err)
	}
}
