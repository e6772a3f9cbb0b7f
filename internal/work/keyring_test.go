package work

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

// A key costs no separate statement while no process loses a claim.
func TestAKeyRunsOneStepAtATimeAndInOrder(t *testing.T) {
	play(t, 10, func(t *testing.T, s *scene) {
		s.db.weather.latency = func(string) time.Duration { return 2 * time.Millisecond }
		s.run = takes(20 * time.Millisecond)
		for range 30 {
			s.db.insert(keyed("a"))
			s.db.insert(keyed("b"))
			s.db.insert()
		}
		s.start()
		s.start()
		s.ended(time.Minute) // the witness watches for overlaps
		last := map[string]int64{}
		for _, v := range s.witness.runs() {
			if key := v.claim.PartitionKey; key != "" {
				require.Greater(t, v.claim.ID, last[key])
				last[key] = v.claim.ID
			}
		}
		s.pass(time.Minute)
		require.Empty(t, s.sent("lingering"))
		require.Empty(t, s.sent("landed"))
	})
}

// deafOnce returns a step that ignores its context in its first run, and ends at once in the
// others.
func deafOnce(d time.Duration) runFunc {
	return func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
		if c.Attempt == 0 {
			return deaf(d)(ctx, p, c)
		}
		return done(), nil
	}
}

// A zombie is a step that still runs although its lease was lost. It keeps its key from its
// successor: in this process by the map, in others by the note of the lost claim, while the process
// lives.
func TestAZombieKeepsItsKey(t *testing.T) {
	for name, lockByLease := range map[string]bool{"advisory": false, "by lease": true} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(t *testing.T, s *scene) {
				s.config.LockByLease = lockByLease
				r := s.db.insert(keyed("k"))
				s.run = deafOnce(5 * time.Minute)
				p := s.start()
				s.pass(time.Second)
				s.db.reaped(r.ID)
				if lockByLease {
					p.Nudge("q")
				} else {
					s.start()
				}
				s.pass(4 * time.Minute)
				require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status, "claimed anew")
				require.Len(t, s.witness.runs(), 1, "but not begun")
				require.Zero(t, s.db.look(r.ID).Crashes, "its lease is extended meanwhile")
				s.pass(time.Minute + 2*time.Second)
				require.Len(t, s.witness.runs(), 2)
				require.Equal(t, []step.Kind{step.Done}, s.db.look(r.ID).outcomes)
				if lockByLease {
					s.pass(2 * time.Minute) // nobody waits for it, so the sweep deletes its note in time
				}
				require.Empty(t, s.db.noted())
			})
		})
	}
}

// The older flight of an instance that its own process has claimed anew is a zombie like any other.
// Although the newer one has taken its place, its note stays until it ends.
func TestAZombieOfAnInstanceThatWasClaimedAnewKeepsItsKey(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"))
		s.run = deafOnce(10 * time.Minute)
		p := s.start()
		s.pass(time.Second)
		s.db.reaped(r.ID)
		p.Nudge("q")
		s.pass(3 * time.Minute)
		require.Equal(t, p.ID(), s.db.look(r.ID).worker, "claimed anew")
		s.db.reaped(r.ID)
		s.start().Nudge("q")
		s.pass(time.Second)
		p.Nudge("q")
		s.pass(5 * time.Minute)
		require.Len(t, s.witness.runs(), 1)
		s.pass(2 * time.Minute)
		require.Len(t, s.witness.runs(), 2)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		s.pass(3 * time.Minute)
		require.Empty(t, s.db.noted())
	})
}

// A claim whose key is still in use elsewhere keeps its row, outside of the slots, and asks again:
// soon at first, then every second.
func TestAStepElsewhereIsWaitedFor(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		var contended int
		s.config.Hooks = []worker.Hooks{{Contended: func(_ context.Context, e worker.ContendedEvent) { contended += e.Claims }}}
		stalled := s.haunted("k")
		r := s.db.insert(keyed("k"))
		s.start()
		s.pass(time.Second)
		require.GreaterOrEqual(t, len(s.sent("lingering")), 7, "soon at first")
		began := time.Now()
		for range 20 {
			s.db.insert()
		}
		s.running[0].Nudge("q")
		s.pass(time.Minute)
		require.Equal(t, []int64{r.ID}, s.left(), "everything else goes on")
		require.InDelta(t, 70, len(s.sent("lingering", began)), 12)
		require.Equal(t, len(s.sent("lingering")), contended)
		stalled.cut()
		s.ended(1100 * time.Millisecond)
		require.Zero(t, s.db.look(r.ID).Attempt)
		require.Empty(t, s.db.noted())
	})
}

// However many claims wait for a stalled process, others are claimed: other keys are never delayed.
func TestManyKeysInUseElsewhereDoNotStopAQueue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		stalled := s.haunted("a", "b", "c")
		for _, key := range []string{"a", "b", "c"} {
			s.db.insert(keyed(key), priority(-1))
		}
		free := s.db.insert()
		other := s.db.insert(keyed("free"))
		s.start()
		s.pass(5 * time.Second)
		require.True(t, s.db.look(free.ID).terminal())
		require.True(t, s.db.look(other.ID).terminal())
		stalled.cut()
	})
}

// A step under a key goes on when the process loses the connection with its liveness lock. The
// process takes the lock again as soon as it notices.
func TestALostConnectionCancelsNoStep(t *testing.T) {
	for name, what := range map[string]answer{"refused": cut, "black hole": silent} {
		t.Run(name, func(t *testing.T) {
			play(t, 4, func(t *testing.T, s *scene) {
				s.run = takes(50 * time.Second)
				r := s.db.insert(keyed("k"))
				p := s.start()
				s.pass(3 * time.Second)
				require.Contains(t, s.db.connected(), p.line)
				p.line.cut()
				s.change(func(w *weather) {
					w.answers = func(verb, _ string) answer {
						if verb == "check" || verb == "beat" {
							return what
						}
						return fair
					}
				})
				s.pass(20 * time.Second)
				require.NotContains(t, s.db.connected(), p.line)
				s.change(func(w *weather) { w.answers = nil })
				s.pass(22 * time.Second) // a heartbeat may wait for its answer for so long
				require.Contains(t, s.db.connected(), p.line, "and nothing was asked for")
				s.ended(time.Minute)
				require.Len(t, s.witness.runs(r.ID), 1)
				require.NoError(t, s.witness.runs(r.ID)[0].cause)
				require.Zero(t, s.db.look(r.ID).Attempt)
			})
		})
	}
}

// Nothing begins under a key before the process has its liveness lock: if the process stalled, no
// process would wait for it.
func TestNoKeyWithoutALivenessLock(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "present" || verb == "check" {
					return cut
				}
				return fair
			}
		})
		under, free := s.db.insert(keyed("k")), s.db.insert()
		s.start()
		s.pass(10 * time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(free.ID).status)
		require.Equal(t, fsm.StatusExecuting, s.db.look(under.ID).status)
		require.Empty(t, s.witness.runs(under.ID))
		s.change(func(w *weather) { w.answers = nil })
		s.pass(1100 * time.Millisecond)
		require.Equal(t, fsm.StatusDone, s.db.look(under.ID).status)
		require.Zero(t, s.db.look(under.ID).Attempt)
	})
}

// Two faults happen at once: a process that has lost its claim and stands still loses its
// connection as well. Then it counts as gone, since no process can tell it from one that is.
func TestAStalledProcessWithoutItsConnectionCountsAsGone(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.witness.lax = true
		r := s.db.insert(keyed("k"))
		s.run = deafOnce(5 * time.Minute)
		p := s.start()
		s.pass(time.Second)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "check" || verb == "beat" || verb == "present" {
					return silent
				}
				return fair
			}
		})
		p.line.cut()
		s.db.reaped(r.ID)
		p.queues["q"].paused.Store(true)
		s.running = nil
		other := s.player()
		s.change(func(w *weather) { w.answers = nil })
		other.Start()
		s.pass(5 * time.Second)
		require.Len(t, s.witness.runs(), 2)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		s.running = append(s.running, p)
		s.pass(6 * time.Minute)
	})
}

// A step ends before another process has taken its claim, although its own process no longer
// believes in the claim. Nothing is noted, and nothing has to be reported.
func TestAZombieThatLandsBeforeTheReap(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		s.config.NoReaper = true
		r := s.db.insert(keyed("k"))
		s.run = deafOnce(90 * time.Second)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "beat" {
					return cut
				}
				return fair
			}
		})
		s.start()
		s.pass(80 * time.Second)
		require.ErrorIs(t, fsm.ErrLeaseLost, s.running[0].flights.of([]int64{r.ID})[0].lost())
		s.ended(time.Minute)
		require.Empty(t, s.sent("landed"))
		require.Empty(t, s.db.noted())
	})
}

// A claim whose answer never came has rows of which this process does not know. When they are
// reaped, no step of them runs, although the process lives. Others wait for them for the time of a
// lease, in case the answer still comes.
func TestALostClaimThatNeverFlewIsForgotten(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		p := s.start()
		s.pass(time.Second)
		r := s.db.insert(keyed("k"), func(r *row) {
			r.status, r.worker, r.Token, r.lease = fsm.StatusExecuting, p.ID(), 77, time.Now()
		})
		s.db.reaped(r.ID)
		p.queues["q"].paused.Store(true)
		s.start()
		s.pass(55 * time.Second)
		require.Empty(t, s.witness.runs(r.ID))
		s.ended(time.Minute)
		require.Empty(t, s.db.noted())
	})
}

// A report that fails at the first attempt is repeated.
func TestTheEndOfALostStepIsToldAgain(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"))
		s.run = deafOnce(30 * time.Second)
		s.start()
		s.pass(time.Second)
		s.db.reaped(r.ID)
		back := time.Now().Add(time.Minute)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "landed" && time.Now().Before(back) {
					return cut
				}
				return fair
			}
		})
		s.pass(55 * time.Second)
		require.NotEmpty(t, s.db.noted())
		s.pass(10 * time.Second)
		require.Empty(t, s.db.noted())
		require.LessOrEqual(t, len(s.sent("landed")), 70)
	})
}

// With LockByLease nothing is locked at all, and one process still runs one step of a key at a
// time.
func TestLockByLeaseLocksNothing(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.LockByLease = true
		s.run = takes(10 * time.Millisecond)
		for range 50 {
			s.db.insert(keyed("k"))
		}
		s.start()
		s.ended(time.Minute)
		require.Empty(t, s.db.connected())
		require.Empty(t, s.sent("check"))
	})
}

// A claim that waits for a zombie of the same process loses its lease before its turn. Then another
// claim gets the key.
func TestAKeyIsFreeWhenWhoWaitedForItHasGone(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"))
		s.run = deafOnce(10 * time.Second)
		p := s.start()
		s.pass(time.Second)
		s.db.reaped(r.ID)
		p.Nudge("q")
		s.pass(8900 * time.Millisecond)
		var waits *flight
		for _, f := range p.flights.all() {
			if f.beat.Attempt == 1 {
				waits = f
			}
		}
		require.NotNil(t, waits, "it waits for the zombie's key")
		s.db.reaped(r.ID)
		waits.cancel(fsm.ErrLeaseLost)
		s.start().Nudge("q") // and another process claims it
		s.pass(3 * time.Minute)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		require.Empty(t, s.db.noted())
	})
}
