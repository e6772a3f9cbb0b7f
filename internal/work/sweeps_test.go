package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/worker"
)

// A key whose next row was locked when it should have come forward is promoted again soon, without
// waiting for the sweep.
func TestMissedPromotionsAreRepeated(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.Reap = 10 * time.Minute // so that the sweep of the keys does not run either
		first, second := s.db.insert(keyed("k")), s.db.insert(keyed("k"))
		s.run = takes(time.Second)
		s.start()
		s.pass(500 * time.Millisecond)
		require.Equal(t, 1, s.db.look(second.ID).lane, "behind its key")
		s.db.change(second.ID, func(r *row) { r.held = time.Now().Add(3 * time.Second) })
		s.pass(time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(first.ID).status)
		require.NotEmpty(t, s.sent("promote"))
		s.pass(2 * time.Second)
		require.Less(t, len(s.sent("promote")), 60, "it backs off to 100 ms")
		began := time.Now()
		s.until(time.Minute, func() bool { return len(s.witness.runs(second.ID)) == 1 }, "promoted")
		require.LessOrEqual(t, time.Since(began), 150*time.Millisecond)
		s.pass(10 * time.Second)
		began = time.Now()
		s.pass(time.Minute)
		require.Empty(t, s.sent("promote", began), "and then it is over")
	})
}

// A transaction outside of the engine holds the rows for which a hundred keys wait, all of them in
// front of an instance that needs none of these rows, in a queue of one slot. That instance runs at
// once. The keys are tried ever less often, and run when the transaction is over.
func TestBlockedKeysDelayNobodyElse(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		const keys = 100
		s.config.Reap = 10 * time.Minute // no sweep of the keys
		over := time.Now().Add(time.Minute)
		for n := range keys {
			key := keyed(fmt.Sprint(n))
			s.db.insert(key, func(r *row) { r.held = over })
			s.db.insert(key)
		}
		free := s.db.insert(func(r *row) { r.Priority = 1 })
		s.start()
		s.until(time.Second, func() bool { return s.db.look(free.ID).status == fsm.StatusDone }, "the free one runs")
		require.Less(t, len(s.sent("claim")), 10)
		s.pass(10 * time.Second)
		before := time.Now()
		s.pass(10 * time.Second)
		require.LessOrEqual(t, len(s.sent("promote", before)), 250, "of all keys together")
		require.LessOrEqual(t, len(s.sent("claim", before)), 60, "what the polls see, for the held rows are due")
		require.Len(t, s.left(), 2*keys)
		s.until(2*time.Minute, func() bool { return len(s.left()) == 0 }, "all keys go on")
	})
}

func TestPromotionsSurviveAnOutage(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.Reap = 10 * time.Minute
		for range 5 {
			for key := range 3 {
				s.db.insert(keyed(fmt.Sprint(key)))
			}
		}
		back := time.Now().Add(20 * time.Second)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "promote" && time.Now().Before(back) {
					return cut
				}
				return fair
			}
		})
		s.run = takes(100 * time.Millisecond)
		s.start()
		s.pass(50 * time.Millisecond)
		for _, id := range s.left() {
			if s.db.look(id).lane == 1 {
				s.db.change(id, func(r *row) { r.held = time.Now().Add(5 * time.Second) })
			}
		}
		s.ended(30 * time.Second)
	})
}

// T200: what the history's roll was refused is logged, and nothing waits for it.
func TestWhatTheHistoryRefusesIsLogged(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.db.old, s.db.rolled = 3, store.Rolled{Refused: 2, Because: "not this one"}
		s.start()
		s.pass(5 * time.Minute)
		require.Zero(t, s.db.old, "the GC goes on")
		require.Len(t, s.journal.saying("refuses to move or to remove rows of the history"), 1)
		require.Contains(t, s.journal.saying("rows of the history")[0], "refused=2 error=not this one")
	})
}

// If a process dies between missing a promotion and repeating it, the sweep of any process finds
// the key.
func TestTheSweepFindsKeysThatStandStill(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"), func(r *row) { r.lane = 1 })
		s.start()
		s.pass(20 * time.Second)
		require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status)
		s.ended(11 * time.Second)
	})
}

func orphan(s *scene) *row {
	return s.db.insert(func(r *row) { r.status, r.worker, r.Token, r.lease = fsm.StatusExecuting, "gone", 999, time.Now() })
}

func TestTheReaperFindsExpiredLeases(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var hooked []int
		s.config.Hooks = []worker.Hooks{{Reap: func(_ context.Context, e worker.ReapEvent) { hooked = append(hooked, e.Released, e.Failed) }}}
		var ended []int64
		s.config.Terminal = func(ids []int64) { s.note(func() { ended = append(ended, ids...) }) }
		s.machine.CrashLimit = 3
		r := orphan(s)
		last := s.db.insert(func(r *row) { r.status, r.worker, r.lease, r.Crashes = fsm.StatusExecuting, "gone", time.Now(), 3 })
		held := s.db.insert(func(r *row) { r.status, r.worker, r.lease = fsm.StatusExecuting, "alive", time.Now().Add(time.Hour) })
		s.start()
		s.pass(30*time.Second + 10*time.Millisecond)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status, "claimed at once, since the reaper nudges")
		require.Equal(t, 1, s.witness.runs(r.ID)[0].claim.Crashes)
		require.Equal(t, "crashes", s.db.look(last.ID).failure)
		require.Equal(t, fsm.StatusExecuting, s.db.look(held.ID).status)
		require.Equal(t, []int{1, 1}, hooked)
		require.ElementsMatch(t, []int64{r.ID, last.ID}, ended)
	})
}

// After an outage every lease has expired, whether its worker lives or not, so living workers must
// beat first (T20).
func TestTheReaperHoldsOffAfterALostConnection(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.Reap = 5 * time.Second
		dead := orphan(s)
		s.db.change(dead.ID, func(r *row) { r.lease = time.Now().Add(3 * time.Minute) })
		p := s.start()
		s.pass(time.Minute)
		s.change(func(w *weather) { w.answers = func(string, string) answer { return cut } })
		s.pass(4 * time.Minute)
		s.change(func(w *weather) { w.answers = nil })
		back := time.Now()
		require.True(t, s.db.look(dead.ID).lease.Before(back))
		s.pass(30 * time.Second)
		require.Empty(t, s.sent("reap", back), "two heartbeats")
		s.pass(20 * time.Second)
		require.NotEmpty(t, s.sent("reap", back))
		require.Equal(t, fsm.StatusDone, s.db.look(dead.ID).status)
		p.stopped()
	})
}

// The server ends sessions every few seconds, as idle_session_timeout does. The next statement
// takes another connection, and beats arrive all the while.
func TestTheReaperGoesOnWhereConnectionsAreLostRegularly(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.run = takes(10 * time.Minute)
		s.db.insert()
		s.change(func(w *weather) {
			cuts, beaten := 0, time.Time{}
			w.answers = func(verb, _ string) answer {
				idle := time.Since(beaten) > 10*time.Second
				switch verb {
				case "beat", "present": // its connection was idle for longer than allowed
					if beaten = time.Now(); idle {
						return cut
					}
				case "poll", "uptime": // their connection is killed now and then
					if cuts++; cuts%5 == 0 {
						return cut
					}
				}
				return fair
			}
		})
		s.start()
		s.pass(time.Minute)
		dead := orphan(s)
		s.pass(3 * time.Minute)
		require.Equal(t, 1, s.db.look(dead.ID).Crashes, "reaped")
		require.NotEmpty(t, s.journal.saying("cannot poll"))
		require.NotEmpty(t, s.journal.saying("cannot heartbeat"))
		require.Zero(t, s.db.look(1).Crashes)
	})
}

// twoProcesses makes a process that holds a claim and does not reap, and one that reaps and holds
// none.
func twoProcesses(s *scene) *row {
	s.run = deaf(time.Hour)
	r := s.db.insert()
	s.config.NoReaper = true
	s.start()
	s.pass(time.Second)
	s.config.NoReaper = false
	s.start()
	s.pass(time.Minute)
	return r
}

// A server that freezes breaks no connection. It answers all statements when it goes on, and by
// then every lease has expired.
func TestTheReaperHoldsOffAfterAFreeze(t *testing.T) {
	play(t, 10, func(t *testing.T, s *scene) {
		s.config.Reap = 5 * time.Second
		r := twoProcesses(s)
		s.change(func(w *weather) {
			w.frozen = time.Now().Add(70 * time.Second)
			w.latency = func(verb string) time.Duration {
				if verb == "beat" {
					return 2 * time.Second // for the last of the statements that are answered then
				}
				return 0
			}
		})
		s.pass(5 * time.Minute)
		require.Empty(t, s.journal.saying("reaped"))
		require.Zero(t, s.db.look(r.ID).Crashes)
	})
}

// On a server that takes no writes no heartbeat takes effect, however often polls are answered.
// Here it takes writes again just when a reaper looks.
func TestTheReaperHoldsOffAfterAReadOnlyPhase(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.Reap = 5 * time.Minute
		r := twoProcesses(s)
		s.change(func(w *weather) {
			w.instead = func(verb, _ string, _ []int64) error {
				switch verb {
				case "poll":
					return nil
				case "uptime":
					w.instead = nil
					return nil
				}
				return refusal("25006")
			}
		})
		s.pass(6 * time.Minute)
		require.NotEmpty(t, s.sent("uptime"))
		require.True(t, time.Now().Before(s.db.look(r.ID).lease))
		require.Empty(t, s.journal.saying("reaped"))
		require.Zero(t, s.db.look(r.ID).Crashes)
	})
}

func TestTheReaperHoldsOffAfterARestartOfTheServer(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.Reap = 5 * time.Second
		s.db.booted = time.Now()
		orphan(s)
		s.start()
		s.pass(39 * time.Second)
		require.Empty(t, s.sent("reap"))
		s.pass(7 * time.Second)
		require.NotEmpty(t, s.sent("reap"))
		require.Empty(t, s.left())
	})
}

// The worst outage lasts longer than the leases, with every process working. No step that still
// runs is taken for dead.
func TestAnOutageReapsNobodyWhoIsAlive(t *testing.T) {
	play(t, 10, func(t *testing.T, s *scene) {
		s.config.Reap = 5 * time.Second
		s.run = takes(time.Hour)
		for range 20 {
			s.db.insert()
		}
		s.start()
		s.start()
		s.pass(time.Minute)
		s.change(func(w *weather) { w.answers = func(string, string) answer { return cut } })
		s.pass(3 * time.Minute)
		s.change(func(w *weather) { w.answers, s.db.booted = nil, time.Now() })
		s.pass(2 * time.Minute)
		for id := int64(1); id <= 20; id++ {
			require.Zero(t, s.db.look(id).Crashes+s.db.look(id).Attempt)
		}
	})
}

func TestReaperAndGCCanBeOff(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.NoReaper, s.config.NoGC = true, true
		orphan(s)
		s.start()
		s.pass(time.Hour)
		require.Empty(t, s.sent("reap"))
		require.Empty(t, s.sent("prune"))
		s.config.NoReaper, s.config.NoGC = false, false
		s.start()
		s.pass(time.Hour)
		require.NotEmpty(t, s.sent("reap"))
		require.InDelta(t, 70, len(s.sent("prune")), 11)
	})
}

// Whatever the archive does, its instances stay, the log says why, and the GC goes on.
func TestAnArchiveThatFailsKeepsWhatItDidNotTake(t *testing.T) {
	for says, archive := range map[string]func(ctx context.Context, ids []int64) error{
		"no space left":            func(context.Context, []int64) error { return errors.New("no space left") },
		"the archive panicked":     func(context.Context, []int64) error { panic("ouch") },
		"or called runtime.Goexit": func(context.Context, []int64) error { runtime.Goexit(); return nil },
		"deadline":                 func(ctx context.Context, _ []int64) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(says, func(t *testing.T) {
			play(t, 4, func(t *testing.T, s *scene) {
				var calls atomic.Int32
				s.config.Archive = func(ctx context.Context, ids []int64) error {
					require.Equal(t, []int64{1, 2}, ids)
					calls.Add(1)
					return archive(ctx, ids)
				}
				s.start()
				s.pass(10 * time.Minute)
				require.Greater(t, calls.Load(), int32(3))
				kept := s.journal.saying("the archive did not take them")
				require.Greater(t, len(kept), 3)
				require.Contains(t, kept[0], says)
			})
		})
	}
}

// A network that swallows an answer costs one sweep, and not all the following ones.
func TestSweepsWithoutAnAnswerAreGivenUp(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		for _, verb := range []string{"prune", "sweep"} {
			var swallowed atomic.Bool
			s.change(func(w *weather) {
				w.answers = func(sent, _ string) answer {
					if sent == verb && swallowed.CompareAndSwap(false, true) {
						return silent
					}
					return fair
				}
			})
			if len(s.running) == 0 {
				s.start()
			}
			s.until(2*time.Minute, swallowed.Load, verb)
			began := time.Now()
			s.pass(statementTimeout + 2*time.Minute)
			require.Greater(t, len(s.sent(verb, began)), 1, verb)
		}
	})
}

func TestGCComesBackSoonWhereThereIsMuch(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.start()
		fill := func(n int) {
			s.db.mu.Lock()
			defer s.db.mu.Unlock()
			s.db.old = n
		}
		fill(pruneMost - 1)
		s.pass(100 * time.Second)
		few := len(s.sent("prune"))
		require.LessOrEqual(t, few, 2, "one that was not full was followed by another at once")
		for range 60 {
			fill(100_000)
			s.pass(2 * time.Second)
		}
		require.Greater(t, len(s.sent("prune"))-few, 10)
	})
}
