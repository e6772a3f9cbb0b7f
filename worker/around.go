package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// Around surrounds a step: the host's middleware, engine.Middleware.Step.
type Around = func(ctx context.Context, i fsm.Info, run func(context.Context) error) error

var (
	errNotRun    = errors.New("middleware returned no error, and has not run the step")
	errSwallowed = errors.New("middleware returned no error where the step failed")
	errRunTwice  = errors.New("middleware runs the step a second time")
)

// surround runs a step within all that surrounds it. What the middleware returns decides: an error of its own replaces an outcome. It cannot
// make an outcome where the step returned none.
func (w *Worker) surround(ctx context.Context, c *step.Claim, body func(context.Context, *step.Claim) (*step.Commit, error)) (*step.Commit, error) {
	var out *step.Commit
	var failed error
	ran := false
	ctx, told := fsm.WithExecution(ctx, c)
	run := func(ctx context.Context) error {
		if ran {
			return errRunTwice
		}
		ran = true
		out, failed = body(ctx, c)
		if out != nil && out.Within == nil {
			told(out.Kind.String())
		}
		return failed
	}
	info := fsm.InfoOf(c)
	for _, around := range slices.Backward(w.c.Around) {
		inner := run
		run = func(ctx context.Context) error { return around(ctx, info, inner) }
	}
	switch err := run(ctx); {
	case err != nil:
		return nil, err
	case !ran:
		return nil, errNotRun
	case failed != nil:
		return nil, errors.Join(errSwallowed, failed)
	}
	return out, nil
}
