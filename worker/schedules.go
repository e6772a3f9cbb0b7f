package worker

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

// fireSoon is how far ahead the poller tells of a schedule: longer than it takes until it tells again.
const fireSoon = 2 * deadlinePoll

// firesIn is told by each poll when the next schedule is due, so that looking for one costs no round trip of its own.
func (w *Worker) firesIn(found store.Polled) {
	if !found.Fires || found.Fire >= fireSoon {
		return
	}
	select {
	case w.fireIn <- found.Fire:
	default: // it has been told, and has not got round to it
	}
}

// schedules fires what is due. Every process does: the rows' locks decide who is first, and the rest pass them by.
func (w *Worker) schedules() {
	next := time.NewTimer(0)
	defer next.Stop()
	again := time.Duration(0) // after an error, not before: polls may be more frequent, and what failed is due still
	for {
		select {
		case <-w.draining:
			return
		case in := <-w.fireIn:
			next.Reset(max(in, again-w.since()))
			continue
		case <-next.C:
		}
		ctx, cancel := context.WithTimeout(w.looking, statementTimeout)
		wait, err := w.c.Fire(ctx, time.Time{}, w.fired)
		cancel()
		if err != nil {
			w.trouble("fire schedules", err)
			wait = deadlinePoll
			again = w.since() + wait
		}
		if wait < fireSoon { // else the poller tells in time
			next.Reset(wait)
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
