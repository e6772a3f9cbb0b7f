package work

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

// commitsTake makes commits take some time. They have their effect in the middle of it.
func commitsTake(s *scene, d time.Duration) {
	s.change(func(w *weather) {
		w.latency = func(verb string) time.Duration {
			if verb == "commit" {
				return d
			}
			return 0
		}
	})
}

func TestAStepBeginsWhileAnOutcomeIsCommitted(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		commitsTake(s, 10*time.Second)
		s.run = takes(time.Second)
		first, second := s.db.insert(), s.db.insert()
		p := s.start()
		s.pass(1500 * time.Millisecond)
		a := p.Activity()
		require.Equal(t, 1, a.Queues[0].Running)
		require.Equal(t, 1, a.Queues[0].Committing)
		require.Equal(t, 2, a.InFlight)
		s.ended(time.Minute)
		one, two := s.witness.runs(first.ID)[0], s.witness.runs(second.ID)[0]
		require.Equal(t, one.to, two.from)
		require.Equal(t, 5*time.Second, one.durable.Sub(one.to))
		s.pass(10 * time.Second)
		require.Zero(t, p.Activity().InFlight+p.Activity().Queues[0].Committing)
	})
}

// The consequences of an outcome begin when that is durable: the next step of the instance, whether
// its claim is kept or not, its parent, and the next instance of its partition key.
func TestNothingFollowsFromAnOutcomeBeforeItIsDurable(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		commitsTake(s, 10*time.Second)
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, time.Second)
			switch {
			case c.CorrelationKey == "kept" && c.Visit < 2:
				return next(), nil
			case c.CorrelationKey == "again" && c.Visit < 2:
				return &step.Commit{Kind: step.Next, Step: "s", State: []byte("{}"), Delay: time.Nanosecond}, nil
			}
			return done(), nil
		}
		kept := s.db.insert(func(r *row) { r.CorrelationKey = "kept" })
		again := s.db.insert(func(r *row) { r.CorrelationKey = "again" })
		parent := s.db.insert(func(r *row) { r.status, r.pending = fsm.StatusAwaitingChildren, 1 })
		only := s.db.insert(child(parent.ID))
		first, second := s.db.insert(keyed("k")), s.db.insert(keyed("k"))
		s.start()
		s.ended(5 * time.Minute)
		apart := func(before, after *visit) {
			t.Helper()
			require.GreaterOrEqual(t, after.from.Sub(before.to), 5*time.Second)
			require.False(t, after.from.Before(before.durable))
		}
		for _, r := range []*row{kept, again} {
			visits := s.witness.runs(r.ID)
			require.Len(t, visits, 3)
			apart(visits[0], visits[1])
			apart(visits[1], visits[2])
		}
		apart(s.witness.runs(only.ID)[0], s.witness.runs(parent.ID)[0])
		apart(s.witness.runs(first.ID)[0], s.witness.runs(second.ID)[0])
	})
}

// A claim that is kept for its next step keeps its slot: the step that follows needs one.
func TestAKeptClaimKeepsItsSlot(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		commitsTake(s, 10*time.Second)
		s.config.RunAheadFor = time.Minute
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.ID == 1 && c.Visit == 0 {
				return next(), nil
			}
			return done(), nil
		}
		kept, other := s.db.insert(), s.db.insert()
		s.start()
		s.ended(time.Minute)
		require.Equal(t, s.witness.runs(kept.ID)[1].to, s.witness.runs(other.ID)[0].from)
		require.EqualValues(t, 1, s.db.look(kept.ID).Token, "one claim")
	})
}

// While no outcome becomes durable, so many steps run as there are slots, and as there is room
// outside of them, and then none. These are the steps that a crash would make run again. When
// outcomes become durable again, each of them does, once.
func TestUndurableOutcomesAreBounded(t *testing.T) {
	const slots, all = 3, 100
	for name, what := range map[string]answer{"no answer": silent, "refused": cut} {
		t.Run(name, func(t *testing.T) {
			play(t, slots, func(t *testing.T, s *scene) {
				s.config.NoReaper = true
				for range all {
					s.db.insert()
				}
				s.change(func(w *weather) {
					w.answers = func(verb, _ string) answer {
						if verb == "commit" {
							return what
						}
						return fair
					}
				})
				p := s.start()
				s.pass(time.Minute)
				require.Len(t, s.witness.runs(), slots+committingEach*slots)
				q := p.Activity().Queues[0]
				require.Equal(t, slots, q.Running)
				require.Equal(t, committingEach*slots, q.Committing)
				claims := len(s.sent("claim"))
				require.LessOrEqual(t, p.Activity().InFlight, slots+committingEach*slots+aheadEach*slots, "claims beyond that wait in the buffer")
				s.pass(5 * time.Second)
				require.Len(t, s.sent("claim"), claims, "and there are no more")
				require.Len(t, s.left(), all)
				s.change(func(w *weather) { w.answers = nil })
				s.ended(5 * time.Minute)
				require.Len(t, s.witness.runs(), all, "each has run once")
				require.Zero(t, p.flights.outside.bytes.Load())
			})
		})
	}
}

// Outcomes that cannot be committed since other sessions hold their rows do not take the room of
// their queue: they have a separate bound.
func TestHeldOutcomesLeaveTheRoomOfTheirQueue(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.config.NoReaper = true
		const held = 3 * committingEach
		var ids []int64
		for range held {
			ids = append(ids, s.db.insert().ID)
		}
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			s.hold(forever(), c.ID)
			return done(), nil
		}
		p := s.start()
		s.until(time.Minute, func() bool { return p.Activity().Queues[0].Held == held }, "all are held up")
		require.Zero(t, p.Activity().Queues[0].Committing)
		s.hold(time.Time{}, ids...)
		s.ended(time.Minute)
		s.pass(time.Second)
		require.Zero(t, p.flights.outside.held.Load()+p.flights.outside.bytes.Load())
	})
}

// The bytes of flights without a slot are bounded: the bytes of their outcomes, and of the input of
// their steps.
func TestUndurableOutcomesAreBoundedByBytes(t *testing.T) {
	big := []byte(`"` + strings.Repeat("x", outsideBytes/3-100) + `"`)
	for name, size := range map[string]func(r *row, o *step.Commit){
		"outcomes": func(_ *row, o *step.Commit) { o.Result = big },
		"states":   func(r *row, _ *step.Commit) { r.State = big },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				s.config.NoReaper = true
				commitsTake(s, 70*time.Second)
				s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
					o := done()
					size(&row{}, o)
					return o, nil
				}
				for range 20 {
					s.db.insert(func(r *row) { size(r, &step.Commit{}) })
				}
				p := s.start()
				s.pass(time.Minute)
				require.Len(t, s.witness.runs(), 3+2, "three of them, and those in slots")
				require.Equal(t, 3, p.Activity().Queues[0].Committing)
				commitsTake(s, 0)
				s.ended(10 * time.Minute)
				require.Zero(t, p.flights.outside.bytes.Load())
			})
		})
	}
}

// While a commit is under way, more outcomes gather than there are slots, so batches become larger
// and commits fewer.
func TestMoreOutcomesGatherThanThereAreSlots(t *testing.T) {
	const slots = 5
	play(t, slots, func(t *testing.T, s *scene) {
		commitsTake(s, 100*time.Millisecond)
		s.run = takes(time.Millisecond)
		for range 400 {
			s.db.insert()
		}
		s.start()
		s.ended(time.Minute)
		largest := 0
		for _, c := range s.db.commits {
			largest = max(largest, len(c.ids))
		}
		require.Greater(t, largest, 2*slots)
		require.Less(t, len(s.db.commits), 400/slots)
	})
}

// Stop waits for outcomes without a slot as for those with one.
func TestStopWaitsForOutcomesOutsideOfTheSlots(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		commitsTake(s, 10*time.Second)
		for range committingEach {
			s.db.insert()
		}
		p := s.start()
		s.pass(time.Second)
		require.Equal(t, committingEach, p.Activity().Queues[0].Committing)
		took, err := p.stop()
		require.NoError(t, err)
		require.LessOrEqual(t, took, 20*time.Second, "two commits at most, one after the other")
		require.Empty(t, s.left())
	})
}

// The handler of an outcome that Postgres refuses runs in a slot: there are never more steps and
// handlers at a time than slots.
func TestAHandlerOfARefusedOutcomeWaitsForASlot(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		var now, most, handlers atomic.Int64
		inside := func(ctx context.Context) {
			most.Store(max(most.Load(), now.Add(1)))
			pace.Sleep(ctx, time.Second)
			now.Add(-1)
		}
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			inside(ctx)
			if c.ID%3 == 0 {
				return &step.Commit{Kind: step.Done, Result: []byte(`"` + poison + `"`)}, nil
			}
			return done(), nil
		}
		s.machine.OnError = func(ctx context.Context, _ *step.Claim, _ error) (*step.Commit, error) {
			inside(ctx)
			handlers.Add(1)
			return &step.Commit{Kind: step.Fail, Err: "handled", Failure: "decided"}, nil
		}
		for range 30 {
			s.db.insert()
		}
		s.start()
		s.ended(2 * time.Minute)
		require.EqualValues(t, 10, handlers.Load())
		require.EqualValues(t, 2, most.Load())
	})
}

// A hook that does not return keeps the flights that wait for it in the room of their queue. So
// there are never more of them, and of their goroutines.
func TestASlowHookBoundsTheStepsThatRun(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		blocked := make(chan struct{})
		s.config.Hooks = []worker.Hooks{{Step: func(context.Context, worker.StepEvent) { <-blocked }}}
		for range 50 {
			s.db.insert()
		}
		s.start()
		s.pass(10 * time.Second)
		require.Len(t, s.witness.runs(), 1+committingEach)
		close(blocked)
		s.ended(time.Minute)
	})
}

// The heartbeat extends the claims of outcomes outside of the slots, however long their commits
// take, and a claim that is lost meanwhile changes nothing.
func TestOutcomesOutsideOfTheSlotsKeepTheirLeases(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		var stale []fsm.ID
		s.config.Hooks = []worker.Hooks{{Stale: func(_ context.Context, e worker.StaleEvent) { stale = append(stale, e.Instance.ID) }}}
		s.change(func(w *weather) {
			w.answers = func(verb, _ string) answer {
				if verb == "commit" {
					return cut
				}
				return fair
			}
		})
		var ids []int64
		for range committingEach {
			ids = append(ids, s.db.insert().ID)
		}
		s.start()
		s.pass(10 * time.Minute)
		for _, id := range ids {
			require.True(t, s.db.look(id).lease.After(time.Now()))
			require.Len(t, s.witness.runs(id), 1)
		}
		s.db.reaped(ids[0])
		s.change(func(w *weather) { w.answers = nil })
		s.ended(time.Minute)
		s.pass(time.Minute) // until the outcome of the lost claim has been tried again
		require.Equal(t, []fsm.ID{fsm.ID(ids[0])}, stale)
		for _, id := range ids {
			require.Len(t, s.db.look(id).outcomes, 1)
			require.Equal(t, slices.Contains(ids[:1], id), len(s.witness.runs(id)) == 2)
		}
	})
}
