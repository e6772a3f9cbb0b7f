// Package around runs a call within middleware.
//
// It imports nothing of the project.
package around

import (
	"context"
	"fmt"
	"slices"
)

// Run runs do within layers, the first of which is the outermost; enter calls one layer, which is
// to call run once. Run returns what the outermost layer returns. A layer that returns no error
// without having run do, or that runs it a second time, gets an error, in which what names do.
//
// A layer may return no error where do has failed. Whether that counts is for the caller to say,
// who alone knows what do has made.
func Run[L any](ctx context.Context, what string, layers []L,
	enter func(ctx context.Context, layer L, run func(context.Context) error) error,
	do func(context.Context) error,
) error {
	ran := false
	run := func(ctx context.Context) error {
		if ran {
			return fmt.Errorf("middleware runs the %s a second time", what)
		}
		ran = true
		return do(ctx)
	}
	for _, layer := range slices.Backward(layers) {
		inner := run
		run = func(ctx context.Context) error { return enter(ctx, layer, inner) }
	}
	if err := run(ctx); err != nil {
		return err
	}
	if !ran {
		return fmt.Errorf("middleware returned no error, and has not run the %s", what)
	}
	return nil
}
