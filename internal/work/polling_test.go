package work

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func TestIdlePollingBacksOff(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.start()
		s.pass(10 * time.Second)
		var gaps []time.Duration
		last := time.Time{}
		for _, p := range s.sent("poll") {
			if p.about == "" {
				continue // a poll for await deadlines alone
			}
			if !last.IsZero() {
				gaps = append(gaps, p.at.Sub(last))
			}
			last = p.at
		}
		jittered := func(want time.Duration) func(time.Duration) bool {
			return func(got time.Duration) bool { return got <= want && got >= want-want/4 }
		}
		require.Condition(t, func() bool { return jittered(500 * time.Millisecond)(gaps[0]) }, "first 500 ms: %v", gaps)
		for _, gap := range gaps[1:] {
			require.Condition(t, func() bool { return jittered(time.Second)(gap) }, "then 1 s, never longer: %v", gaps)
		}
		require.LessOrEqual(t, len(s.sent("claim")), 2, "a queue where nothing is seen is not claimed from, but at the start")
	})
}

func TestPollingSnapsBackOnWork(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.start()
		for range 10 {
			s.pass(20*time.Second + 400*time.Millisecond)
			r, at := s.db.insert(), time.Now() // by another process, so without a nudge
			s.until(2*time.Second, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "found")
			require.LessOrEqual(t, time.Since(at), time.Second+5*time.Millisecond)
			r, at = s.db.insert(), time.Now()
			s.until(2*time.Second, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "found")
			require.LessOrEqual(t, time.Since(at), 250*time.Millisecond+10*time.Millisecond, "where there was work, more is expected")
		}
	})
}

func TestTenIdleQueuesCostAtMostTwoPollsASecond(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		for i := range 9 {
			s.config.Queues[fmt.Sprint("q", i)] = usual(4)
		}
		s.start()
		s.pass(5 * time.Second)
		settled := time.Now()
		s.pass(100 * time.Second)
		polls := s.sent("poll", settled)
		require.LessOrEqual(t, len(polls), 200)
		require.GreaterOrEqual(t, len(polls), 95, "each queue every second at the latest")
		for _, p := range polls {
			if p.about != "" {
				require.Len(t, strings.Fields(p.about), 10, "all of them in one statement")
			}
		}
		require.LessOrEqual(t, len(s.sent("claim")), 20)
	})
}

func TestAPollFindsWhatAnotherProcessInserted(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.Queues["other"] = usual(4)
		s.start()
		for i := range 50 {
			s.pass(time.Duration(i) * 137 * time.Millisecond)
			r, at := s.db.insert(in("other")), time.Now()
			s.until(2*time.Second, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "found")
			require.LessOrEqual(t, time.Since(at), time.Second+5*time.Millisecond)
		}
	})
}

func TestAnAwaitTimesOutWithinASecond(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.start()
		for i := range 20 {
			s.pass(3*time.Second + time.Duration(i)*77*time.Millisecond)
			r := s.db.insert()
			at := time.Now().Add(time.Duration(i) * 300 * time.Millisecond)
			s.db.change(r.ID, func(r *row) { r.status, r.deadline = fsm.StatusAwaitingSignal, at })
			s.until(time.Minute, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "woken")
			require.LessOrEqual(t, time.Since(at), time.Second+10*time.Millisecond)
			require.True(t, s.witness.runs(r.ID)[0].claim.TimedOut)
		}
	})
}

// More awaits than one sweep takes time out together.
func TestManyAwaitsTimeOutTogether(t *testing.T) {
	play(t, 500, func(t *testing.T, s *scene) {
		at := time.Now().Add(5 * time.Second)
		for range 2001 {
			s.db.insert(func(r *row) { r.status, r.deadline = fsm.StatusAwaitingSignal, at })
		}
		s.start()
		s.ended(time.Minute)
		require.LessOrEqual(t, time.Since(at), 1200*time.Millisecond)
		require.Len(t, s.sent("time out"), 3)
	})
}

// A poll that fails neither ends polling nor causes a flood of polls.
func TestPollingGoesOnAfterAnOutage(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.start()
		s.pass(10 * time.Second)
		s.db.mu.Lock()
		s.db.weather.answers = func(string, string) answer { return cut }
		s.db.mu.Unlock()
		gone := time.Now()
		s.pass(10 * time.Minute)
		require.Less(t, len(s.sent("poll", gone)), 200)
		s.db.mu.Lock()
		s.db.weather.answers = nil
		s.db.mu.Unlock()
		r := s.db.insert()
		s.pass(10 * time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		require.GreaterOrEqual(t, len(s.sent("poll", time.Now().Add(-4*time.Second))), 4, "as often as before")
	})
}

// The poller is not needed for an instance that an outcome makes runnable in less than a poll's
// interval.
func TestAShortDelayIsKept(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		const delay = 100 * time.Millisecond
		for n, kind := range []step.Kind{step.Next, step.Retry} {
			s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
				if c.Attempt+int(c.Visit) == 0 {
					return &step.Commit{Kind: kind, Step: "s", Delay: delay}, nil
				}
				return done(), nil
			}
			r := s.db.insert()
			if n == 0 {
				s.start()
			}
			s.until(2*time.Second, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "done")
			runs := s.witness.runs(r.ID)
			require.Len(t, runs, 2)
			require.InDelta(t, delay, runs[1].from.Sub(runs[0].from), float64(10*time.Millisecond), kind)
			s.pass(10 * time.Second)
		}
	})
}

// A claim from the front may have to step over the entries of all rows that were claimed before, so
// most claims resume where the last one stopped. They still find rows that are more urgent. Other
// rows in front wait for the next claim from the front, which comes soon, even if nothing else
// causes a claim.
func TestClaimsGoOnBehindTheLast(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		const took = 30 * time.Millisecond
		s.change(func(w *weather) {
			w.latency = func(verb string) time.Duration {
				if verb == "claim" {
					return took
				}
				return 0
			}
			s.db.walk = took
		})
		s.run = takes(time.Millisecond)
		for range 2000 {
			s.db.insert()
		}
		p := s.start()
		s.pass(2 * time.Second)
		s.db.mu.Lock()
		fronts := s.db.fronts
		s.db.mu.Unlock()
		require.InDelta(t, 2*time.Second/(frontTimes*took), fronts, 3)
		require.Greater(t, len(s.sent("claim")), 5*fronts)

		found := func(within time.Duration, of ...func(*row)) {
			t.Helper()
			r := s.db.insert(of...)
			p.Nudge("q")
			s.until(within, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "done")
		}
		const soon, late = 4 * took, (frontTimes + 4) * took
		for range 10 {
			found(soon, priority(-1))
			found(late, after(-time.Hour))
		}
		s.ended(time.Minute)
		for range 20 {
			found(soon)
			found(soon, priority(-1))
			found(late, after(-time.Hour))
		}
		s.pass(10 * time.Second)
		claims := len(s.sent("claim"))
		s.pass(time.Minute)
		require.Len(t, s.sent("claim"), claims, "an idle queue is left to the poller")
	})
}

// If stepping over them takes seconds, a claim from the front still comes every few seconds.
func TestClaimsFromTheFrontAreNotPutOffForever(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.change(func(w *weather) {
			w.latency = func(verb string) time.Duration {
				if verb == "claim" {
					return 2 * time.Second
				}
				return 0
			}
			s.db.walk = 2 * time.Second
		})
		for range 1000 {
			s.db.insert()
		}
		s.start()
		s.pass(time.Minute)
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		require.InDelta(t, time.Minute/(frontLate+2*time.Second), s.db.fronts, 3)
	})
}

// Rows that cannot run are moved out of the front at once, however many rows there are to claim
// behind the last place.
func TestTheFrontIsClearedAtOnce(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.change(func(w *weather) { s.db.walk = time.Second })
		p := s.start()
		r := s.db.insert()
		p.Nudge("q")
		s.until(2*frontTimes*time.Second, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "done")
		s.pass(2 * frontLate)
		for range 5 * windowMost {
			s.db.insert(after(-time.Hour), func(r *row) { r.Machine = "nobody's" })
		}
		last := s.db.insert(after(-time.Minute))
		p.Nudge("q")
		s.until(frontLate/10, func() bool { return s.db.look(last.ID).status == fsm.StatusDone }, "done")
	})
}

// Workers in a company look at the same times, whenever they began: so their looks go together.
func TestIdlePollsOfACompanyAreAligned(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.Company = store.NewCompany(nil)
		for i := range 8 {
			s.start()
			s.pass(time.Duration(i) * 137 * time.Millisecond)
		}
		s.pass(5 * time.Second)
		settled := time.Now()
		s.pass(100 * time.Second)
		times := map[time.Time]int{}
		for _, p := range s.sent("poll", settled) {
			times[p.at.Truncate(10*time.Millisecond)]++
		}
		require.LessOrEqual(t, len(times), 102)
		require.GreaterOrEqual(t, len(times), 98)
		for _, polls := range times {
			require.Equal(t, 8, polls)
		}
	})
}
