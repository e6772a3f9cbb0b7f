package outcome

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/fsm"
)

// The error of the last call may be nil.
func last(ctx context.Context, v *visit) (fsm.Outcome, error) {
	err := work(ctx)
	return v.Done(1), err
}

func cured(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := work(ctx); err != nil {
		err = work(ctx)
		return v.Done(1), err
	}
	if err := work(ctx); err != nil {
		return nil, err
	}
	return v.Done(1), nil
}

func other(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := work(ctx); err == nil || v.State > 1 {
		return v.Done(1), err
	}
	if err := work(ctx); err != nil {
		fail := func() (fsm.Outcome, error) { return v.Done(1), err }
		return fail()
	}
	return decide(v), errors.New("nobody can say whether there was an outcome")
}

func decide(*visit) fsm.Outcome { return nil }

// Outcomes of a batch stand beside the error of the others.
func batch(_ context.Context, all []*visit) ([]fsm.Outcome, error) {
	return []fsm.Outcome{all[0].Done(1)}, errors.New("of the others")
}

func notAStep(v *visit) (*fsm.NextOutcome, error) {
	return v.Next("a", 1), errors.New("for its caller")
}

// Variables that have other values by now.
func assigned(ctx context.Context, v *visit) (fsm.Outcome, error) {
	var out fsm.Outcome = v.Next("a", v.State)
	err := errors.New("not yet")
	if v.State > 1 {
		err = work(ctx)
	}
	if v.State > 2 {
		out = nil
		return out, errors.New("no")
	}
	return v.Done(1), err
}
