package worker

import (
	"context"
	"time"
)

// schedulesPoll is how soon a process notices a schedule that another one has stored, resumed or moved.
const schedulesPoll = time.Second

// schedules fires what is due. Every process does: the rows' locks decide who is first, and the rest pass them by.
func (w *Worker) schedules() {
	wait := time.Duration(0)
	for w.pause(wait) {
		ctx, cancel := context.WithTimeout(w.looking, statementTimeout)
		next, err := w.c.Fire(ctx, time.Time{}, w.fired)
		cancel()
		if wait = min(next, schedulesPoll); err != nil {
			w.trouble("fire schedules", err)
			wait = schedulesPoll
		}
	}
}

// FireTold is told that a schedule has moved on.
type FireTold func(schedule string, inserted, missed, skipped int, late time.Duration)

func (w *Worker) fired(schedule string, inserted, missed, skipped int, late time.Duration) {
	for _, hook := range w.hooks.fire {
		w.survive(func() { hook(w.base, schedule, inserted, missed, skipped, late) })
	}
}
