package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

type Trip struct {
	Customer string
	Booked   []string // what is to be undone, in the order of booking
	Why      string
}

var Booking = fsm.Declare[Trip, fsm.None]("trip")

type booking struct {
	book, cancel func(ctx context.Context, what, customer, idempotencyKey string) error
}

func (m booking) definition() fsm.Definition {
	return Booking.Define(
		fsm.Step("start", m.take("flight", "hotel")).To("hotel", "undo").Timeout(time.Minute),
		fsm.Step("hotel", m.take("hotel", "")).To("undo").Timeout(time.Minute),
		fsm.Step("undo", m.undo).To("undo").Timeout(time.Minute),
	).OnError(m.failed).CrashLimit(0)
}

func (m booking) take(what, next string) fsm.StepFunc[Trip, fsm.None] {
	return func(ctx context.Context, v *fsm.Visit[Trip, fsm.None]) (fsm.Outcome, error) {
		if err := m.book(ctx, what, v.State.Customer, v.IdempotencyKey(what)); err != nil {
			return nil, err
		}
		v.State.Booked = append(v.State.Booked, what)
		if next == "" {
			return v.Done(fsm.None{}), nil
		}
		return v.Next(next, v.State), nil
	}
}

// undo cancels one booking a visit, the newest first.
func (m booking) undo(ctx context.Context, v *fsm.Visit[Trip, fsm.None]) (fsm.Outcome, error) {
	last := len(v.State.Booked) - 1
	if last < 0 {
		return v.Fail(errors.New("undone: " + v.State.Why)), nil
	}
	what := v.State.Booked[last]
	if err := m.cancel(ctx, what, v.State.Customer, v.IdempotencyKey("cancel "+what)); err != nil {
		return nil, err
	}
	v.State.Booked = v.State.Booked[:last]
	return v.Next("undo", v.State), nil
}

func (m booking) failed(_ context.Context, v *fsm.Visit[Trip, fsm.None], err error) (fsm.Outcome, error) {
	err = errors.New(err.Error()) // no longer Permanent, which would end it here with nothing undone
	if v.Step == "undo" || v.Attempt < 4 {
		return v.RetryBy(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited}, err), nil
	}
	v.State.Booked = append(v.State.Booked, map[string]string{"start": "flight", "hotel": "hotel"}[v.Step]) // it may have happened
	v.State.Why = err.Error()
	return v.Next("undo", v.State), nil
}
