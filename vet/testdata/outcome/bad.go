package outcome

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

type visit = fsm.Visit[int, int]

func work(context.Context) error { return nil }

var errSoldOut = errors.New("sold out")

func known(ctx context.Context, v *visit) (fsm.Outcome, error) {
	if err := work(ctx); err != nil {
		return v.Next("refund", v.State), err // want `outcome: the engine ignores an outcome beside an error`
	}
	err := work(ctx)
	if err != nil && v.Attempt > 3 {
		fsm.Logger(ctx).Error("failed", "error", err)
		return v.Fail(err).Unless("late", fsm.DeclareSignal[int]("paid")), err // want `outcome: the engine ignores`
	}
	switch {
	case v.State == 1:
		return v.Done(1), fmt.Errorf("wrapped: %w", err) // want `outcome: the engine ignores`
	case v.State == 2:
		return v.Again(time.Minute), fsm.Again(time.Minute) // want `outcome: the engine ignores`
	case v.State == 3:
		return v.Retry(v.State, time.Minute), errSoldOut // want `outcome: the engine ignores`
	case v.State == 4:
		return v.Next("a", 1).After(time.Minute), io.EOF // want `outcome: the engine ignores`
	case v.State == 5:
		return v.Done(1), &fsm.OutcomeError{} // want `outcome: the engine ignores`
	case v.State == 6:
		return v.Done(1), fsm.Permanent(errors.New("no")) // want `outcome: the engine ignores`
	}
	return engine.InTx(func(context.Context, pgx.Tx) (fsm.Outcome, error) {
		return v.Done(1), errors.New("no") // want `outcome: the engine ignores`
	}), nil
}

// The values stand in variables.
func named(ctx context.Context, v *visit) (fsm.Outcome, error) {
	out := v.Next("a", v.State)
	if err := work(ctx); err != nil {
		return out, fmt.Errorf("work: %w", err) // want `outcome: the engine ignores`
	}
	if v.State > 1 {
		err := errors.New("no")
		return v.Done(1), err // want `outcome: the engine ignores`
	}
	return out, nil
}
