package recipes

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// polite holds steps back while their queue's provider wants to be left alone. A step that is held
// back has not run: that costs it no attempt.
func polite(until func(queue string) time.Time) engine.Middleware {
	return engine.Middleware{Step: func(ctx context.Context, i fsm.Info, run func(context.Context) error) error {
		if wait := time.Until(until(i.Queue)); wait > 0 {
			return fsm.Again(wait)
		}
		return run(ctx)
	}}
}
