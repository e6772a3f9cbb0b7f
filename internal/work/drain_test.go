package work

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// buffered makes the queue claim ahead, so that a drain finds claims that were never started.
func buffered(s *scene, slots, buffer int) {
	q := usual(slots)
	q.Buffer = buffer
	s.config.Queues["q"] = q
}

func TestDrainGivesBackWhatWasNeverStarted(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		buffered(s, 2, 10)
		s.run = takes(10 * time.Second)
		for range 20 {
			s.db.insert()
		}
		s.db.insert(priority(-1), keyed("k"))
		p := s.start()
		s.pass(time.Second)
		stop := time.Now()
		took, err := p.stop()
		require.NoError(t, err)
		require.Equal(t, 9*time.Second, took, "as long as the running steps took")
		require.Len(t, s.witness.runs(), 2, "nothing begins while draining")
		require.Empty(t, s.sent("claim", stop))
		require.Len(t, s.sent("release"), 1, "all together")
		require.Equal(t, stop, s.sent("release")[0].at, "at once, not when the others have ended")
		for _, v := range s.witness.runs() {
			require.Equal(t, fsm.StatusDone, s.db.look(v.claim.ID).status)
		}
		for _, id := range s.left() {
			r := s.db.look(id)
			require.Equal(t, fsm.StatusRunnable, r.status)
			require.Zero(t, r.Attempt+r.Crashes+int(r.Visit))
		}
	})
}

// A drain may begin at any moment: also between two steps of one claim, while a claim or a commit
// is under way, or while slots are being freed.
func TestNoStepBeginsAfterDrainHas(t *testing.T) {
	t.Parallel()
	for wait := range 200 {
		t.Run("", func(t *testing.T) {
			play(t, 3, func(t *testing.T, s *scene) {
				buffered(s, 3, wait%5)
				s.db.weather.latency = func(string) time.Duration { return 3 * time.Millisecond }
				s.config.RunAheadFor = time.Hour
				s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
					if c.ID%2 == 0 {
						return done(), nil
					}
					return next(), nil
				}
				for range 200 {
					s.db.insert()
				}
				p := s.start()
				s.pass(time.Duration(20+wait)*time.Millisecond + 500*time.Microsecond)
				began := time.Now()
				p.stopped()
				for _, v := range s.witness.runs() {
					require.False(t, v.from.After(began), "instance %d began %v into the drain", v.claim.ID, v.from.Sub(began))
				}
				for _, id := range s.left() {
					r := s.db.look(id)
					require.Equal(t, fsm.StatusRunnable, r.status, "instance %d", id)
					require.Zero(t, r.Attempt+r.Crashes)
				}
			})
		})
	}
}

func TestAfterDrainTimeoutStepsAreToldToStopAndReleased(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		var cause error
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			o, err := takes(time.Hour)(ctx, p, c)
			s.note(func() { cause = context.Cause(ctx) })
			return o, err
		}
		s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
			t.Error("the handler was called for what the engine did itself")
			return next(), nil
		}
		for range 3 {
			s.db.insert()
		}
		p := s.start()
		s.pass(time.Second)
		took, err := p.stop()
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, took)
		require.Equal(t, fsm.ErrDraining, cause)
		for id := int64(1); id <= 3; id++ {
			r := s.db.look(id)
			require.Equal(t, fsm.StatusRunnable, r.status)
			require.Zero(t, r.Attempt+r.Crashes+int(r.Visit))
			require.Empty(t, r.outcomes)
		}
	})
}

func TestAnOutcomeReturnedInSpiteOfTheDrainIsCommitted(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.run = deaf(33 * time.Second)
		s.db.weather.latency = func(verb string) time.Duration {
			if verb == "commit" {
				return time.Second
			}
			return 0
		}
		r := s.db.insert()
		p := s.start()
		s.pass(time.Second)
		took, err := p.stop()
		require.NoError(t, err, "within the grace")
		require.Equal(t, 33*time.Second, took, "the committer was flushed")
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
	})
}

func TestAStepThatNeverListensFallsToItsLease(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.run = deaf(10 * time.Minute)
		r := s.db.insert(keyed("k"))
		p := s.start()
		s.pass(time.Second)
		took, err := p.stop()
		require.ErrorContains(t, err, "1 (m)")
		require.Equal(t, 35*time.Second, took, "drain timeout and grace")
		require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status)
		require.Empty(t, s.db.connected(), "who claims its key next need not wait for it")
		s.pass(11 * time.Minute)
		require.Empty(t, s.db.look(r.ID).outcomes, "its late outcome goes nowhere")
	})
}

func TestHeartbeatsAndKeysOutliveTheDrain(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.config.DrainTimeout = 10 * time.Minute
		s.run = takes(8 * time.Minute)
		r := s.db.insert(keyed("k"))
		p := s.start()
		s.pass(time.Second)
		began := time.Now()
		took, err := p.stop()
		require.NoError(t, err)
		require.Equal(t, 8*time.Minute-time.Second, took)
		require.GreaterOrEqual(t, len(s.sent("beat", began)), 18)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		last := s.db.commits[len(s.db.commits)-1].to
		require.False(t, p.line.closed.Before(last), "heartbeat and liveness lock ended before the last commit")
		require.Equal(t, time.Now(), p.line.closed)
	})
}

// Heartbeats that are more frequent than they can be answered keep the leases all the same: each
// has the time that the lease allows, not only its interval.
func TestFrequentHeartbeatsWaitForTheirAnswers(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.config.Lease, s.config.Heartbeat = 3*time.Second, 20*time.Millisecond
		s.db.weather.latency = func(verb string) time.Duration {
			if verb == "beat" || verb == "check" || verb == "present" {
				return 200 * time.Millisecond
			}
			return 0
		}
		s.run = takes(time.Minute)
		r := s.db.insert(keyed("k"))
		p := s.start()
		require.Equal(t, 750*time.Millisecond, p.self().Live, "a report counts for longer than the next one may take")
		s.pass(2 * time.Minute)
		require.Len(t, s.db.look(r.ID).outcomes, 1)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		require.Zero(t, s.db.look(r.ID).Crashes)
	})
}

func TestACallerInAHurryShortensTheDrain(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.run = takes(time.Hour)
		r := s.db.insert()
		p := s.start()
		s.pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(t, p.Stop(ctx))
		s.running = nil
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status, "still in order")
	})
}

// Stop ends within its limits with a database that refuses or swallows everything, from the start
// or only later.
func TestStopEndsWithoutADatabase(t *testing.T) {
	for name, what := range map[string]answer{"refused": cut, "black hole": silent, "deadlocks": deadlock} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				buffered(s, 2, 5)
				s.config.Queues["other"] = usual(3)
				s.run = takes(20 * time.Second)
				for range 10 {
					s.db.insert()
				}
				s.db.insert(keyed("k"), priority(-1))
				p := s.start()
				s.pass(time.Second)
				s.db.mu.Lock()
				s.db.weather.answers = func(string, string) answer { return what }
				s.db.mu.Unlock()
				s.pass(25 * time.Second) // the steps have ended, and cannot be committed
				p.Nudge("other", "q")
				s.pass(time.Millisecond)
				took, err := p.stop()
				require.Error(t, err)
				require.LessOrEqual(t, took, s.config.DrainTimeout+s.config.DrainGrace+time.Second)
				require.Empty(t, s.witness.runs()[4:], "two have left their slots, and two begun in these: Stop begins no more")
			})
		})
	}
}

func TestAnOrderlyDrainIsQuiet(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.db.weather.latency = func(string) time.Duration { return 10 * time.Millisecond }
		s.run = takes(50 * time.Millisecond)
		for range 100 {
			s.db.insert()
		}
		p := s.start()
		s.pass(505 * time.Millisecond)
		p.stopped()
		require.Empty(t, s.journal.saying("WARN"))
		require.Empty(t, s.journal.saying("ERROR"))
	})
}

// A process that stops in order leaves nothing for which another has to wait.
func TestTheNextProcessGoesOnAtOnce(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		buffered(s, 4, 8)
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			if len(s.witness.runs()) <= 4 {
				<-ctx.Done()
				return nil, errors.New("interrupted")
			}
			return done(), nil
		}
		for range 10 {
			s.db.insert(keyed("a"))
			s.db.insert()
		}
		p := s.start()
		s.pass(time.Second)
		p.stopped()
		began := time.Now()
		s.start()
		s.ended(time.Minute)
		require.Less(t, time.Since(began), time.Second)
	})
}

// A claim that is under way when the time of the drain is over gets some of the grace to answer. If
// it were cut off, it might take rows that no process gives back.
func TestAClaimUnderWayMayAnswer(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.config.DrainTimeout, s.config.DrainGrace = time.Second, 10*time.Second
		s.db.weather.latency = func(verb string) time.Duration {
			if verb == "claim" {
				return 1500 * time.Millisecond
			}
			return 0
		}
		r := s.db.insert()
		p := s.start()
		s.pass(time.Millisecond)
		took, err := p.stop()
		require.NoError(t, err)
		require.LessOrEqual(t, took, 2*time.Second)
		require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status)
	})
}
