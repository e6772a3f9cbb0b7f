package work

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// fireSoon is how far ahead the poller reports a schedule. It is longer than the time until the
// poller reports again.
const fireSoon = 2 * deadlinePoll

// schedules fires due schedules. Every process does: the rows' locks decide who is first, and the
// others skip the rows.
type schedules struct {
	*process
	in chan time.Duration // time until the next schedule is due, from the poller
}

func newSchedules(p *process) *schedules {
	return &schedules{process: p, in: make(chan time.Duration, 1)}
}

// expect learns from each poll when the next schedule is due, so that looking for one costs no
// separate round trip.
func (s *schedules) expect(found store.Polled) {
	if !found.Fires || found.Fire >= fireSoon {
		return
	}
	select {
	case s.in <- found.Fire:
	default: // an earlier report is still unread
	}
}

func (s *schedules) run() {
	next := time.NewTimer(0)
	defer next.Stop()
	again := time.Duration(0) // earliest time after an error: polls may be more frequent, and a schedule that failed is still due
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
		if wait < fireSoon { // otherwise the poller reports in time
			next.Reset(wait)
		}
	}
}

func (s *schedules) fired(e worker.FireEvent) { tell(s.base, s.process, s.hooks.fire, e) }
