package recipes

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/fsm"
)

type Journey struct {
	Parts []string
	Why   string // why it is undone; "": it is not
}

var (
	Journeys = fsm.Declare[Journey, fsm.None]("journey")
	Part     = fsm.Declare[string, fsm.None]("journey.part")
	Refund   = fsm.Declare[string, fsm.None]("journey.refund")
)

func journey(book, refund func(ctx context.Context, part string) (fsm.None, error)) []fsm.Definition {
	return []fsm.Definition{
		Journeys.Define(fsm.Step("start", bookAll).To("booked"), fsm.Step("booked", booked).To("booked", "undone"), fsm.Step("undone", undone).To()).
			Retry(fsm.RetryPolicy{}).CrashLimit(0),
		Part.Job(book),
		Refund.Job(refund).Retry(fsm.RetryPolicy{MaxAttempts: fsm.Unlimited}),
	}
}

// bookAll books all parts side by side, and goes on with the first that fails.
func bookAll(_ context.Context, v *fsm.Visit[Journey, fsm.None]) (fsm.Outcome, error) {
	parts := make([]fsm.Spec, len(v.State.Parts))
	for i, part := range v.State.Parts {
		parts[i] = Part.New(part)
	}
	return v.ScheduleChildren("booked", v.State, parts...).FailFast().CancelRest(), nil
}

// booked undoes every part of a journey of which one has failed, once none is under way any more.
func booked(_ context.Context, v *fsm.Visit[Journey, fsm.None]) (fsm.Outcome, error) {
	round := v.Round()
	switch {
	case round.Left > 0: // they are about to be cancelled, and may be done before
		return v.Rejoin("booked", v.State), nil
	case round.Failed == 0:
		return v.Done(fsm.None{}), nil
	}
	var refunds []fsm.Spec
	for i, part := range Part.Children(v) { // in the order of Parts
		if _, err := part.Result(); err != nil && v.State.Why == "" && part.Failure != fsm.FailureCancelled {
			v.State.Why = v.State.Parts[i] + ": " + err.Error()
		}
		refunds = append(refunds, Refund.New(v.State.Parts[i]))
	}
	return v.ScheduleChildren("undone", v.State, refunds...), nil
}

func undone(_ context.Context, v *fsm.Visit[Journey, fsm.None]) (fsm.Outcome, error) {
	return v.Fail(errors.New("undone: " + v.State.Why)), nil
}
