package worker

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/store"
)

// fireSoon is how far ahead the poller tells of a schedule: longer than it takes until it tells
// again.
const fireSoon = 2 * deadlinePoll

// schedules fires what is due. Every process does: the rows' locks decide who is first, and the
// rest pass them by.
type schedules struct {
	*process
	in chan time.Duration // until the next one is due, as the poller sees it
}

func newSchedules(p *process) *schedules {
	return &schedules{process: p, in: make(chan time.Duration, 1)}
}

// expect takes from each poll when the next schedule is due, so that looking for one costs no round
// trip of its own.
func (s *schedules) expect(found store.Polled) {
	if !found.Fires || found.Fire >= fireSoon {
		return
	}
	select {
	case s.in <- found.Fire:
	default: // it has been told, and has not got round to it
	}
}

func (s *schedules) run() {
	next := time.NewTimer(0)
	defer next.Stop()
	again := time.Duration(0) // after an error, not before: polls may be more frequent, and what failed is due still
	for {
		select {
		case <-s.draining:
			return
		case in := <-s.in:
			next.Reset(max(in, again-s.since()))
			continue
		case <-next.C:
		}
		ctx, cancel := context.WithTimeout(s.looking, statementTimeout)
		wait, err := s.config.Fire(ctx, time.Time{}, s.fired)
		cancel()
		if err != nil {
			s.trouble("fire schedules", err)
			wait = deadlinePoll
			again = s.since() + wait
		}
		if wait < fireSoon { // else the poller tells in time
			next.Reset(wait)
		}
	}
}

func (s *schedules) fired(e FireEvent) { tell(s.base, s.process, s.hooks.fire, e) }
