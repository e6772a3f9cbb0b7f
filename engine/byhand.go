package engine

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/worker"
)

// ByHand makes an engine that does nothing by itself: each claim is made, and each schedule fired,
// when the Hand is told to. It is for package durabletest, which hosts use instead. The engine
// counts as started, whether it has queues or not, and looks neither at the schema nor for a proxy.
// Config.Schedules are stored as of a time.
func ByHand(ctx context.Context, c Config, at time.Time) (*Engine, *worker.Hand, error) {
	e, err := New(c)
	if err != nil {
		return nil, nil, err
	}
	if err := e.storeSchedules(ctx, at); err != nil {
		return nil, nil, err
	}
	if e.worker == nil {
		e.worker = worker.New(e.workerConfig())
	}
	e.life.Store(StateStarted)
	return e, e.worker.ByHand(), nil
}
