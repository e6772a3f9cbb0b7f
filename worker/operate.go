package worker

import "github.com/gendurable/gendurable/fsm"

// Cancelled tells the steps of instances that an operator of this process has just cancelled;
// elsewhere the next heartbeat does.
func (w *Worker) Cancelled(ids []int64) {
	for _, f := range w.flights.of(ids) {
		f.cancel(fsm.ErrCancelled)
	}
}

// Paused lets the steps of instances that an operator of this process has just paused not run
// ahead; elsewhere the next heartbeat does.
func (w *Worker) Paused(ids []int64) {
	for _, f := range w.flights.of(ids) {
		f.paused.Store(true)
	}
}
