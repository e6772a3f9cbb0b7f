package work

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// setPaused pauses queues like an operator in another process.
func (s *scene) setPaused(queues ...string) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.paused = nil
	for _, q := range queues {
		s.db.paused = append(s.db.paused, store.PausedQueue{Queue: q})
	}
}

// However busy a queue is, within a second nothing more of it is claimed or started, its buffered
// claims are given back unchanged, and its running steps end.
func TestAPausedQueueIsLeftAloneWithinASecond(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		buffered(s, 2, 10)
		s.config.Queues["other"] = usual(2)
		s.run = takes(10 * time.Second)
		for range 20 {
			s.db.insert()
			s.db.insert(in("other"))
		}
		p := s.start()
		s.pass(9 * time.Second)
		require.Greater(t, len(p.flights.all()), 4, "some are buffered")
		s.setPaused("q", "nobody's")
		s.pass(11 * time.Second) // a second to notice it, and time for the steps to end
		began := time.Now()
		ran := len(s.witness.runs())
		s.pass(time.Minute)
		claims := map[string]int{}
		for _, c := range s.sent("claim", began) {
			claims[c.about]++
		}
		require.Zero(t, claims["q"])
		require.NotZero(t, claims["other"])
		require.Greater(t, len(s.witness.runs()), ran, "the other queue's go on")
		for _, f := range p.flights.all() {
			require.Equal(t, "other", f.beat.Queue)
		}
		for _, r := range s.db.all() {
			require.Zero(t, r.Attempt+r.Crashes, "untouched")
		}
		s.setPaused()
		s.ended(5 * time.Minute)
	})
}

// A claim is not kept for further steps of a paused queue.
func TestRunAheadEndsWithItsQueue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.config.RunAheadFor, s.config.RunAheadSteps = time.Hour, 1_000_000
		steps := 0
		s.run = func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, 100*time.Millisecond)
			if steps++; steps == 200 {
				return done(), nil
			}
			return next(), nil
		}
		s.db.insert()
		s.start()
		s.pass(5 * time.Second)
		s.setPaused("q")
		s.pass(2 * time.Second)
		before := steps
		s.pass(time.Minute)
		require.Equal(t, before, steps)
		s.setPaused()
		s.ended(time.Minute)
	})
}

// A process that starts does not begin with a claim from a queue that is paused, and begins at once
// with one that is not.
func TestAProcessStartsWithItsQueuesPaused(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.config.Queues["other"] = usual(2)
		s.setPaused("q")
		paused, other := s.db.insert(), s.db.insert(in("other"))
		p := s.start()
		p.Nudge("q", "other")
		s.pass(time.Millisecond)
		require.Empty(t, s.witness.runs(paused.ID))
		require.Len(t, s.witness.runs(other.ID), 1)
		p.stopped()
		s.setPaused()
		s.start()
		s.ended(time.Second)
	})
}

// A drain begins while a paused queue's buffer is being given back. Each claim is given back once.
func TestDrainOfAPausedQueue(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		buffered(s, 2, 10)
		s.run = takes(10 * time.Second)
		for range 12 {
			s.db.insert()
		}
		p := s.start()
		s.pass(5 * time.Second)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "release" {
					return cut
				}
				return fair
			}
		})
		s.setPaused("q")
		s.pass(2 * time.Second)
		s.change(func(w *weather) { w.answers = nil })
		p.stopped()
		require.Empty(t, p.flights.all())
		s.setPaused()
		s.start()
		s.ended(5 * time.Minute)
	})
}
