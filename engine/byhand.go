package engine

import "github.com/gendurable/gendurable/worker"

// ByHand makes an engine that does nothing by itself: each claim is made when the Hand is told to. It is for package durabletest, which hosts
// use instead. The engine counts as started, whether it has queues or not, and looks neither at the schema nor for a proxy.
func ByHand(c Config) (*Engine, *worker.Hand, error) {
	e, err := New(c)
	if err != nil {
		return nil, nil, err
	}
	if e.worker == nil {
		e.worker = worker.New(e.workerConfig())
	}
	e.life.Store(StateStarted)
	return e, e.worker.ByHand(), nil
}
