package work

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/worker"
)

// Until a schedule is due, schedules cost no round trips beside the polls. Then they are looked at
// in time, even if another process has stored them since.
func TestSchedulesAreLookedAtWhenDue(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var looks []time.Time
		s.config.Fire = func(context.Context, time.Time, func(worker.FireEvent)) (time.Duration, error) {
			s.db.mu.Lock()
			defer s.db.mu.Unlock()
			looks = append(looks, time.Now())
			if !s.db.scheduled.IsZero() && time.Until(s.db.scheduled) <= 0 {
				s.db.scheduled = time.Time{}
			}
			return fireSoon, nil
		}
		looked := func() []time.Time {
			s.db.mu.Lock()
			defer s.db.mu.Unlock()
			return slices.Clone(looks)
		}
		s.start()
		s.pass(time.Minute)
		require.Len(t, looked(), 1, "at the start, and not again")

		due := time.Now().Add(30*time.Second + 123*time.Millisecond)
		s.db.mu.Lock()
		s.db.scheduled = due
		s.db.mu.Unlock()
		s.pass(time.Minute)
		require.Len(t, looked(), 2)
		require.WithinDuration(t, due, looked()[1], 50*time.Millisecond)

		s.db.mu.Lock()
		s.db.scheduled = time.Now().Add(-time.Hour) // stored late
		s.db.mu.Unlock()
		s.pass(2 * time.Second)
		require.Len(t, looked(), 3)
	})
}

// A schedule that cannot be fired is tried again. When Fire itself expects the next one, the worker
// does not wait for the poll.
func TestSchedulesThatFailAreLookedAtAgain(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var looks atomic.Int64
		s.db.scheduled = time.Now() // as polls report it, which work causes more than once a second
		s.config.Fire = func(context.Context, time.Time, func(worker.FireEvent)) (time.Duration, error) {
			switch n := looks.Add(1); {
			case n < 5:
				return 0, context.DeadlineExceeded
			case n < 10:
				s.db.mu.Lock()
				defer s.db.mu.Unlock()
				s.db.scheduled = time.Time{}
				return 50 * time.Millisecond, nil
			}
			return fireSoon, nil
		}
		s.start()
		for range 34 {
			s.db.insert()
			s.pass(100 * time.Millisecond)
		}
		require.EqualValues(t, 4, looks.Load(), "once a second")
		s.pass(5 * time.Second)
		require.EqualValues(t, 10, looks.Load())
	})
}
