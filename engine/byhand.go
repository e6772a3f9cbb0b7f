package engine

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/work"
)

func init() { step.Hidden.ByHand = byHand } //nolint:gochecknoinits // so it is no part of what the package exports

// byHand makes an engine that does nothing by itself: it claims and fires schedules only when a
// method of the Hand says so. The engine counts as started, whether it has queues or not, and
// checks neither the schema nor whether there is a proxy. It stores Config.Schedules as of the time
// at. Package internal/byhand has it for durabletest.
func byHand(ctx context.Context, c Config, at time.Time) (*Engine, *work.Hand, error) {
	e, err := New(c)
	if err != nil {
		return nil, nil, err
	}
	if err := e.storeSchedules(ctx, at); err != nil {
		return nil, nil, err
	}
	if e.worker == nil {
		e.worker = work.New(e.workerConfig())
	}
	e.life.Store(StateStarted)
	return e, e.worker.ByHand(), nil
}
