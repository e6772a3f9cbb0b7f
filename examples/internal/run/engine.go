package run

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// While starts the engine, runs f, and stops the engine in order, also when f was interrupted.
func While(ctx context.Context, eng *engine.Engine, f func(context.Context) error) error {
	if err := eng.Start(ctx); err != nil {
		return err
	}
	err := f(ctx)
	// ctx may be over, and be the reason for stopping: a drain needs one that is not.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, eng.Stop(ctx))
}
