package work

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

// change changes the weather while other goroutines use it.
func (s *scene) change(edit func(w *weather)) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	edit(&s.db.weather)
}

// Processes of one configuration, on hosts of one name, do not take each other's claims for their
// own (T15).
func TestEveryWorkerHasANameOfItsOwn(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		names := map[string]bool{}
		for range 3 {
			name := s.start().ID()
			id, err := uuid.Parse(name)
			require.NoError(t, err)
			require.EqualValues(t, 4, id.Version(), "random")
			require.False(t, names[name])
			names[name] = true
		}
	})
}

// The heartbeat extends the leases of all flights: buffered, waiting for a key, running, or held up
// by another session. None of them is lost for hours.
func TestEveryFlightIsBeaten(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		buffered(s, 2, 3)
		p := s.start()
		stalled := s.haunted("taken")
		waiting := s.db.insert(keyed("taken"), priority(-2))
		committing := s.db.insert(priority(-1))
		running := s.db.insert()
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			if c.ID == committing.ID {
				s.db.change(c.ID, func(r *row) { r.held = forever() })
				return done(), nil
			}
			return takes(time.Hour)(ctx, p, c)
		}
		for range 5 {
			s.db.insert(priority(1))
		}
		p.Nudge("q")
		s.pass(time.Minute)
		began := time.Now()
		s.pass(20 * time.Minute)
		beats := s.sent("beat", began)
		require.InDelta(t, 60, len(beats), 5, "every 20 s")
		ids := map[string]int{}
		for _, b := range beats {
			for _, id := range strings.Fields(b.about) {
				ids[id]++
			}
		}
		for name, r := range map[string]*row{"waiting for its key": waiting, "committing": committing, "running": running} {
			require.Equal(t, len(beats), ids[strconv.FormatInt(r.ID, 10)], name)
			require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status, name)
		}
		require.GreaterOrEqual(t, len(ids), 2+1+2, "slots, the one outside of them, buffer")
		require.Zero(t, s.db.look(waiting.ID).Crashes)
		require.Len(t, s.witness.runs(), 3, "what is held up has left its slot")
		// No beat can extend the lease of a row that another session has locked. Here the lock goes
		// before the lease is over, so that no reaper is faster than the next try.
		s.db.change(committing.ID, func(r *row) { r.held, r.lease = time.Time{}, time.Now().Add(time.Minute) })
		stalled.cut()
		s.pass(20 * time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(committing.ID).status)
		s.pass(time.Hour)
		require.Len(t, s.witness.runs(waiting.ID), 1)
	})
}

// A server that takes longer for each statement than a heartbeat waits for it costs no lease
// (T216): the heartbeat becomes patient.
func TestASlowServerCostsNoLease(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.config.Lease, s.config.Heartbeat = 30*time.Second, time.Second
		s.run = takes(time.Hour)
		r := s.db.insert()
		s.change(func(w *weather) {
			w.latency = func(verb string) time.Duration {
				if verb == "beat" || verb == "check" || verb == "present" {
					return 5 * time.Second
				}
				return 0
			}
		})
		p := s.start()
		s.pass(70 * time.Minute)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		require.Len(t, s.witness.runs(r.ID), 1, "it never lost its lease")
		p.stopped()
	})
}

func TestALostLeaseCancelsTheStepAndItsLateOutcomeIsNoError(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		var stale []fsm.ID
		s.config.Hooks = []worker.Hooks{{Stale: func(_ context.Context, e worker.StaleEvent) { stale = append(stale, e.Instance.ID) }}}
		var cause error
		var noticed time.Time
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.Attempt > 0 {
				return done(), nil
			}
			<-ctx.Done()
			cause, noticed = context.Cause(ctx), time.Now()
			return next(), nil // in spite of the cancelled context
		}
		s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
			t.Error("the handler was called")
			return next(), nil
		}
		r := s.db.insert()
		p := s.start()
		s.pass(5 * time.Second)
		s.db.change(r.ID, func(r *row) { // another process reaped and claimed it
			r.worker, r.Token, r.lease, r.Attempt = "another", r.Token+100, time.Now().Add(time.Hour), 1
		})
		began := time.Now()
		s.pass(21 * time.Second)
		require.Equal(t, fsm.ErrLeaseLost, cause)
		require.LessOrEqual(t, noticed.Sub(began), 20*time.Second, "the next beat says so")
		require.Empty(t, s.db.look(r.ID).outcomes, "what came late changed nothing")
		require.Equal(t, []fsm.ID{1}, stale)
		require.Len(t, s.journal.saying("came too late"), 1)
		p.stopped()
	})
}

func TestAStepThatReturnsBecauseItsLeaseIsLostIsReleasedOnlyIfItIsStillOurs(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.run = takes(10 * time.Minute)
		r := s.db.insert()
		p := s.start()
		s.pass(5 * time.Second)
		s.db.change(r.ID, func(r *row) { r.worker, r.lease = "another", time.Now().Add(time.Hour) })
		s.pass(30 * time.Second)
		require.Equal(t, "another", s.db.look(r.ID).worker)
		require.Len(t, s.sent("release"), 1)
		p.stopped()
	})
}

// After the local deadline a step's context ends, for whatever reason no heartbeat is answered, and
// before a reaper may take the instance.
func TestLocalDeadline(t *testing.T) {
	for name, what := range map[string]answer{"refused": cut, "black hole": silent, "deadlocks": deadlock} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				var cause error
				var noticed time.Time
				s.config.NoReaper = true
				s.run = func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
					<-ctx.Done()
					cause, noticed = context.Cause(ctx), time.Now()
					return nil, ctx.Err()
				}
				r := s.db.insert()
				s.start()
				s.pass(30 * time.Second) // time for an answer to a beat
				lease := s.db.look(r.ID).lease
				s.change(func(w *weather) { w.answers = func(string, string) answer { return what } })
				s.pass(5 * time.Minute)
				require.Equal(t, fsm.ErrLeaseLost, cause)
				require.True(t, noticed.Before(lease), "%v after the lease was over", noticed.Sub(lease))
				require.Greater(t, noticed, lease.Add(-10*time.Second), "not for any hiccup")
				s.change(func(w *weather) { w.answers = nil })
				s.pass(90 * time.Second)
				require.Zero(t, s.db.look(r.ID).Attempt, "released, not failed")
				require.Len(t, s.witness.runs(r.ID), 2)
			})
		})
	}
}

// A buffered claim whose lease became doubtful is given back, not begun (T23), even if it was not
// cancelled yet.
func TestADoubtfulClaimIsNotBegun(t *testing.T) {
	for _, blocked := range []time.Duration{54*time.Second + 500*time.Millisecond, 2 * time.Minute} {
		t.Run(blocked.String(), func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				buffered(s, 1, 1)
				s.config.NoReaper = true
				s.run = deaf(blocked)
				s.db.insert()
				waiting := s.db.insert()
				s.db.weather.answers = func(verb, _ string) answer {
					if verb == "beat" {
						return cut
					}
					return fair
				}
				s.start()
				s.pass(blocked - time.Millisecond)
				require.Empty(t, s.witness.runs(waiting.ID))
				s.pass(time.Second)
				require.Len(t, s.witness.runs(waiting.ID), 1)
				require.Greater(t, s.witness.runs(waiting.ID)[0].claim.Token, int64(2), "claimed anew, under a lease of its own")
				require.Zero(t, s.db.look(waiting.ID).Attempt)
			})
		})
	}
}

// After a failover that lost commits, an id and its token may come again, even for another
// instance. A claim of this process voids its earlier one, whatever the token.
func TestANewerClaimVoidsTheOlder(t *testing.T) {
	for name, late := range map[string]func(ctx context.Context) (*step.Commit, error){
		"outcome":  func(context.Context) (*step.Commit, error) { return done(), nil },
		"released": func(ctx context.Context) (*step.Commit, error) { return nil, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				var cause error
				first := true
				s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
					if !first {
						return takes(10*time.Second)(ctx, p, c)
					}
					first = false
					<-ctx.Done()
					cause = context.Cause(ctx)
					pace.Sleep(context.WithoutCancel(ctx), 5*time.Second)
					return late(ctx)
				}
				r := s.db.insert()
				p := s.start()
				s.pass(time.Second)
				s.db.change(r.ID, func(r *row) { r.status, r.worker = fsm.StatusRunnable, "" })
				s.db.mu.Lock()
				s.db.tokens-- // as it was before the failover
				s.db.mu.Unlock()
				p.Nudge("q")
				s.pass(time.Second)
				require.Equal(t, fsm.ErrLeaseLost, cause)
				require.Len(t, s.witness.runs(), 2)
				require.Equal(t, s.witness.runs()[0].claim.Token, s.witness.runs()[1].claim.Token)
				s.pass(6 * time.Second)
				require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status, "the older one ended, and did nothing to the newer")
				s.pass(5 * time.Second)
				require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
				require.Len(t, s.db.look(r.ID).outcomes, 1)
			})
		})
	}
}

// The outcome of the older claim was already being retried, in a database that was away, when the
// newer claim came.
func TestANewerClaimVoidsAnOutcomeThatIsBeingRetried(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		r := s.db.insert()
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			if len(s.witness.runs()) > 1 {
				return takes(20*time.Second)(ctx, p, c)
			}
			return done(), nil
		}
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "commit" {
					return cut
				}
				return fair
			}
		})
		p := s.start()
		s.pass(10 * time.Second)
		s.db.change(r.ID, func(r *row) { r.status, r.worker = fsm.StatusRunnable, "" })
		s.db.mu.Lock()
		s.db.tokens--
		s.db.mu.Unlock()
		p.Nudge("q")
		s.pass(time.Second)
		require.Len(t, s.witness.runs(), 2)
		s.change(func(w *weather) { w.answers = nil })
		s.pass(10 * time.Second)
		require.Empty(t, s.db.look(r.ID).outcomes)
		s.pass(10 * time.Second)
		require.Len(t, s.db.look(r.ID).outcomes, 1)
	})
}

// A beat skips a row that is locked at the moment. A skipped row is not lost.
func TestALockedRowIsNotALostLease(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.run = takes(50 * time.Second)
		r := s.db.insert()
		s.start()
		s.pass(time.Second)
		s.db.change(r.ID, func(r *row) { r.held = time.Now().Add(25 * time.Second) })
		s.ended(55 * time.Second)
		require.NoError(t, s.witness.runs()[0].cause)
		require.Len(t, s.witness.runs(), 1)
	})
}

// Every heartbeat finds a row locked that one transaction after the other locks, but the reaper
// might find a moment in between. The row's worker waits for its turn, and for no other row
// meanwhile.
func TestABusyRowIsNotALostLease(t *testing.T) {
	play(t, 10, func(t *testing.T, s *scene) {
		s.run = takes(10 * time.Minute)
		busy, other := s.db.insert(), s.db.insert()
		s.start()
		s.pass(time.Second)
		s.db.change(busy.ID, func(r *row) { r.busy = true })
		s.ended(11 * time.Minute)
		for _, r := range s.witness.runs() {
			require.NoError(t, r.cause)
		}
		require.Len(t, s.witness.runs(), 2)
		require.NotEmpty(t, s.sent("insist"))
		require.Less(t, len(s.sent("insist")), len(s.sent("beat")), "only of a lease that is half over")
		for _, at := range s.sent("insist") {
			require.Equal(t, strconv.FormatInt(busy.ID, 10), at.about, "%d is free", other.ID)
		}
	})
}

// A claim whose answer is lost has taken rows of which this process does not know. They are given
// back, and count no crash.
func TestWhatALostClaimTookGoesBack(t *testing.T) {
	for name, lost := range map[string]answer{"taken": lostDone, "not taken": lostNever} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				claims := 0
				s.db.weather.answers = func(verb, _ string) answer {
					if verb == "claim" {
						if claims++; claims == 2 {
							return lost
						}
					}
					return fair
				}
				s.run = takes(10 * time.Second)
				running := s.db.insert()
				p := s.start()
				s.pass(time.Second)
				r := s.db.insert(keyed("k"))
				p.Nudge("q")
				s.ended(15 * time.Second)
				require.Len(t, s.witness.runs(running.ID), 1, "what is in flight is no stray")
				require.Len(t, s.witness.runs(r.ID), 1)
				require.Zero(t, s.db.look(r.ID).Crashes)
				require.Len(t, s.sent("held"), 1)
				p.stopped()
			})
		})
	}
}

func TestWhatTheLastClaimTookGoesBackToo(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		r := s.db.insert()
		s.db.weather.answers = func(verb, _ string) answer {
			if verb == "claim" {
				return lostDone
			}
			return fair
		}
		s.db.weather.latency = func(string) time.Duration { return 2 * time.Second }
		p := s.start()
		s.pass(time.Second)
		p.stopped()
		require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status)
		require.Empty(t, s.witness.runs())
	})
}
