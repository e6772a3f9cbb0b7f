package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

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
		s.pass(time.Second)
		require.Empty(t, s.db.locks)
	})
}

// A zombie, whose lease was lost but whose step still runs, keeps its key from its successor: in this process by the map, since session
// locks are re-entrant (T90), in others by the lock.
func TestAZombieKeepsItsKey(t *testing.T) {
	for name, lockByLease := range map[string]bool{"advisory": false, "by lease": true} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(t *testing.T, s *scene) {
				s.config.LockByLease = lockByLease
				r := s.db.insert(keyed("k"))
				s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
					if c.Attempt == 0 {
						return deaf(5*time.Minute)(ctx, p, c)
					}
					return done(), nil
				}
				p := s.start()
				s.pass(time.Second)
				s.db.change(r.ID, func(r *row) { r.status, r.worker, r.Attempt = fsm.StatusRunnable, "", 1 }) // reaped
				p.Nudge("q")
				if !lockByLease {
					s.start()
				}
				s.pass(4 * time.Minute)
				require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status, "claimed anew")
				require.Len(t, s.witness.runs(), 1, "but not begun")
				require.Zero(t, s.db.look(r.ID).Crashes, "its lease is extended meanwhile")
				s.pass(time.Minute + time.Second)
				require.Len(t, s.witness.runs(), 2)
				require.Equal(t, []step.Kind{step.Done}, s.db.look(r.ID).outcomes)
			})
		})
	}
}

// A claim whose key is locked elsewhere keeps its row, outside of the slots, and asks again: soon at first, then every second.
func TestALockHeldElsewhereIsWaitedFor(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		var contended int
		s.config.Hooks = []Hooks{{Contended: func(_ context.Context, e ContendedEvent) { contended += e.Claims }}}
		stranger := &fakeKeys{db: s.db, misuse: s.witness.problem}
		_, err := stranger.TryLock(t.Context(), []int64{s.hash("k")})
		require.NoError(t, err)
		r := s.db.insert(keyed("k"))
		s.start()
		s.pass(time.Second)
		require.GreaterOrEqual(t, len(s.sent("lock")), 7, "soon at first")
		began := time.Now()
		for range 20 {
			s.db.insert()
		}
		s.running[0].Nudge("q")
		s.pass(time.Minute)
		require.Equal(t, []int64{r.ID}, s.left(), "everything else goes on")
		require.InDelta(t, 70, len(s.sent("lock", began)), 12)
		require.Equal(t, len(s.sent("lock"))-1, contended)
		stranger.cut()
		s.ended(1100 * time.Millisecond)
		require.Zero(t, s.db.look(r.ID).Attempt)
	})
}

// However many claims wait for locks that a stalled process holds, others are claimed: other keys are never held up.
func TestManyLocksHeldElsewhereDoNotStopAQueue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		stranger := &fakeKeys{db: s.db, misuse: s.witness.problem}
		for _, key := range []string{"a", "b", "c"} {
			_, err := stranger.TryLock(t.Context(), []int64{s.hash(key)})
			require.NoError(t, err)
			s.db.insert(keyed(key), priority(-1))
		}
		free := s.db.insert()
		other := s.db.insert(keyed("free"))
		s.start()
		s.pass(5 * time.Second)
		require.True(t, s.db.look(free.ID).terminal())
		require.True(t, s.db.look(other.ID).terminal())
		stranger.cut()
	})
}

func TestALostConnectionTellsTheStepsUnderItsKeys(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		causes := map[int64]error{}
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			o, err := takes(20*time.Second)(ctx, p, c)
			s.note(func() { causes[c.ID] = context.Cause(ctx) })
			return o, err
		}
		s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
			t.Error("the handler was called")
			return next(), nil
		}
		under, free := s.db.insert(keyed("k")), s.db.insert()
		p := s.start()
		s.pass(3 * time.Second)
		p.keys.cut()
		cutAt := time.Now()
		s.pass(7 * time.Second)
		require.Equal(t, fsm.ErrKeyLost, causes[under.ID])
		require.LessOrEqual(t, s.witness.runs(under.ID)[0].to.Sub(cutAt), 6*time.Second, "noticed soon, though nothing was asked of it")
		require.Len(t, s.witness.runs(under.ID), 2, "released, and claimed again under a new lock")
		require.Zero(t, s.db.look(under.ID).Attempt)
		s.ended(time.Minute)
		require.NoError(t, causes[free.ID])
		require.Len(t, s.witness.runs(free.ID), 1)
	})
}

// Its release has to wait for a database that is away for longer than anyone's patience, but not for the lease.
func TestAStepWhoseKeyWasLostInAnOutageBurnsNoAttempt(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.run = takes(time.Minute)
		r := s.db.insert(keyed("k"))
		p := s.start()
		s.pass(3 * time.Second)
		p.keys.cut()
		s.change(func(w *weather) { w.answers = func(string, string) answer { return cut } })
		s.pass(30 * time.Second)
		s.change(func(w *weather) { w.answers = nil })
		s.ended(5 * time.Minute)
		require.Zero(t, s.db.look(r.ID).Attempt+s.db.look(r.ID).Crashes)
		require.Len(t, s.witness.runs(), 2)
	})
}

// A session that swallows what it is asked holds nothing up for longer than it takes to notice.
func TestABlackHoleUnderTheKeysIsNoticed(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var noticed time.Time
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			if c.PartitionKey != "old" {
				return done(), nil
			}
			o, err := takes(10*time.Minute)(ctx, p, c)
			if noticed.IsZero() {
				noticed = time.Now()
			}
			return o, err
		}
		s.db.insert(keyed("old"))
		p := s.start()
		s.pass(3 * time.Second)
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "lock" || verb == "unlock" || verb == "alive" {
					return silent
				}
				return fair
			}
		})
		began := time.Now()
		r := s.db.insert(keyed("new"))
		p.Nudge("q")
		s.pass(30 * time.Second)
		require.False(t, noticed.IsZero())
		require.Less(t, noticed.Sub(began), 20*time.Second, "well before a lease is over")
		s.change(func(w *weather) { w.answers = nil })
		began = time.Now()
		s.until(time.Minute, func() bool { return s.db.look(r.ID).terminal() }, "done")
		require.Less(t, time.Since(began), 20*time.Second)
	})
}

// Keys of equal hash are one lock to Postgres: they take turns, and nothing spins meanwhile.
func TestKeysOfEqualHashTakeTurns(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		var hashed atomic.Int64
		s.hash = func(string) int64 { return 7 + 0*hashed.Add(1) }
		s.run = takes(10 * time.Second)
		a, b := s.db.insert(keyed("a")), s.db.insert(keyed("b"))
		s.start()
		s.pass(9 * time.Second)
		require.Less(t, hashed.Load(), int64(200), "nothing spins")
		s.ended(time.Minute)
		one, two := s.witness.runs(a.ID)[0], s.witness.runs(b.ID)[0]
		if two.from.Before(one.from) {
			one, two = two, one
		}
		require.False(t, two.from.Before(one.to))
		require.LessOrEqual(t, two.from.Sub(one.to), time.Second)
	})
}

// By lease, nothing is locked at all, and one process still runs one step of a key at a time.
func TestLockByLeaseLocksNothing(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.LockByLease = true
		s.run = takes(10 * time.Millisecond)
		for range 50 {
			s.db.insert(keyed("k"))
		}
		s.start()
		s.ended(time.Minute)
		require.Empty(t, s.sent("lock"))
	})
}

// Where a key's next row waits in the same process, the lock is kept for it: one statement less, twice.
func TestAKeyIsNotUnlockedForItsOwnSuccessor(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"))
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.Visit == 50 {
				return done(), nil
			}
			return next(), nil
		}
		s.start()
		s.ended(time.Minute)
		require.Len(t, s.db.look(r.ID).outcomes, 51)
		require.Len(t, s.sent("lock"), 1, "a kept claim keeps its key")
	})
}

// A lock that is kept for who waits here is given back when that one has gone instead: else nobody anywhere gets the key again.
func TestALockKeptForOneWhoHasGoneIsGivenBack(t *testing.T) {
	play(t, 3, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"))
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			if c.Attempt == 0 {
				return deaf(10*time.Second)(ctx, p, c)
			}
			return done(), nil
		}
		p := s.start()
		s.pass(time.Second)
		s.db.change(r.ID, func(r *row) { r.status, r.worker, r.Attempt = fsm.StatusRunnable, "", 1 }) // reaped
		p.Nudge("q")
		s.pass(8900 * time.Millisecond)
		var waits *flight
		for _, f := range p.flights.all() {
			if f.beat.Attempt == 1 {
				waits = f
			}
		}
		require.NotNil(t, waits, "it waits for the zombie's key")
		s.db.change(r.ID, func(r *row) { r.status, r.worker, r.Attempt = fsm.StatusRunnable, "", 2 }) // reaped again
		waits.cancel(fsm.ErrLeaseLost)
		s.start().Nudge("q") // and claimed by another
		s.pass(30 * time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		require.Empty(t, s.db.locks)
	})
}
