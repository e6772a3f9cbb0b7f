package work

import "github.com/gendurable/gendurable/fsm"

// Cancelled cancels the steps of instances that an operator of this process has just cancelled. In
// other processes the next heartbeat does.
func (w *Worker) Cancelled(ids []int64) {
	for _, f := range w.flights.of(ids) {
		f.cancel(fsm.ErrCancelled)
	}
}

// Paused keeps instances that an operator of this process has just paused from running ahead. In
// other processes the next heartbeat does.
func (w *Worker) Paused(ids []int64) {
	for _, f := range w.flights.of(ids) {
		f.paused.Store(true)
	}
}
