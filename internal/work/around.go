package work

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/around"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
)

// Around surrounds a step: the host's middleware, engine.Middleware.Step.
type Around = func(ctx context.Context, i fsm.Info, run func(context.Context) error) error

var errSwallowed = errors.New("a step's middleware returned no error although the step failed: return the error that run returned")

// surround runs a step within the middleware and everything else around it. The middleware's return
// value decides: its error replaces an outcome. It cannot make an outcome if the step returned
// none.
func (p *process) surround(ctx context.Context, c *step.Claim,
	body func(context.Context, *step.Claim) (*step.Commit, error),
) (*step.Commit, error) {
	var out *step.Commit
	var failed error
	ctx, told := hidden.WithExecution(ctx, c)
	info := hidden.InfoOf(c)
	enter := func(ctx context.Context, layer Around, run func(context.Context) error) error {
		return layer(ctx, info, run)
	}
	err := around.Run(ctx, "step", p.config.Around, enter, func(ctx context.Context) error {
		out, failed = body(ctx, c)
		if out != nil && out.Within == nil {
			told(out.Kind)
		}
		return failed
	})
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return nil, errors.Join(errSwallowed, failed)
	}
	return out, nil
}
