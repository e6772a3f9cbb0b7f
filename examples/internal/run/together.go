package run

import (
	"context"
	"sync"
)

// Together runs all functions at the same time and waits for all. The first error cancels the
// others and is returned.
func Together(ctx context.Context, all ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}
