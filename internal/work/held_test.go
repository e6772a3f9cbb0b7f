package work

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

// hold makes other sessions hold the rows of some instances until a time, which may be past.
func (s *scene) hold(until time.Time, ids ...int64) {
	for _, id := range ids {
		s.db.change(id, func(r *row) { r.held = until })
	}
}

// heldAtEnd makes n steps of queue q end at the same moment, each with a row that another session
// holds.
func heldAtEnd(s *scene, n int) (ids []int64) {
	for range n {
		ids = append(ids, s.db.insert().ID)
	}
	s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
		if slices.Contains(ids, c.ID) && !pace.Sleep(ctx, 500*time.Millisecond) {
			return nil, ctx.Err()
		}
		return done(), nil
	}
	s.config.NoReaper = true
	return ids
}

// COMMITs get no answer for batches in which another session holds a row. The other outcomes are
// decided at once, and the held one when its row is free, unless its attempt took effect.
func TestAHeldRowDoesNotHoldUpABatchOfUnknownFate(t *testing.T) {
	for name, what := range map[string]answer{"applied": lostDone, "not applied": lostNever, "applied late": lostLate} {
		t.Run(name, func(t *testing.T) {
			play(t, 0, func(t *testing.T, s *scene) {
				together(s, 200)
				s.config.Hooks = []worker.Hooks{{Stale: func(context.Context, worker.StaleEvent) { t.Error("taken for stale") }}}
				p := s.start()
				s.pass(990 * time.Millisecond) // the steps are about to end
				s.change(func(w *weather) {
					w.answers = func(verb, _ string) answer {
						if verb == "commit" {
							return what
						}
						return fair
					}
				})
				s.pass(20 * time.Millisecond) // their first COMMITs have been sent
				s.hold(forever(), 7)
				s.change(func(w *weather) { w.answers = nil })
				s.pass(10 * time.Second)
				if what != lostNever { // when the old backend has ended, at the latest
					require.Zero(t, p.Activity().InFlight, "each bears a mark of its attempts, held or not")
					return
				}
				require.Equal(t, 1, p.Activity().InFlight)
				require.LessOrEqual(t, len(s.left()), 1)
				s.hold(time.Time{}, 7)
				s.ended(time.Second)
				for id := int64(1); id <= 200; id++ {
					require.Len(t, s.db.look(id).outcomes, 1)
					require.Len(t, s.witness.runs(id), 1)
				}
			})
		})
	}
}

// Outcomes whose rows other sessions hold leave their slots to other instances of the queue.
func TestHeldOutcomesLeaveTheirSlots(t *testing.T) {
	play(t, 20, func(t *testing.T, s *scene) {
		ids := heldAtEnd(s, 20)
		s.start()
		s.pass(100 * time.Millisecond)
		s.hold(forever(), ids...)
		for range 50 {
			s.db.insert()
		}
		s.until(3*time.Second, func() bool { return len(s.left()) == 20 }, "the others of the queue")
		require.ElementsMatch(t, ids, s.left())
		s.pass(2 * time.Minute)
		s.hold(time.Time{}, ids...)
		s.ended(2 * time.Second)
		for _, id := range ids {
			require.Len(t, s.witness.runs(id), 1, "its lease was extended all the while")
		}
	})
}

// However many outcomes other sessions hold up, one that needs none of their rows is committed at
// once, even if it is of a kind that may have to wait.
func TestHeldOutcomesDelayNobodyElse(t *testing.T) {
	for _, n := range []int{0, 10, 40, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			play(t, max(1, n), func(t *testing.T, s *scene) {
				ids := heldAtEnd(s, n)
				usually := s.run
				s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
					if c.Priority == 5 && c.Visit == 0 {
						return &step.Commit{Kind: step.Children, Step: "s", State: []byte("{}"), Spawn: []step.Spec{{Key: "a key"}}}, nil
					}
					return usually(ctx, p, c)
				}
				s.config.Queues["other"] = usual(1)
				p := s.start()
				s.pass(100 * time.Millisecond)
				s.hold(forever(), ids...)
				s.pass(10 * time.Second)
				for range 20 {
					parent := s.db.insert(in("other"), priority(5))
					p.Nudge("other")
					s.until(time.Second, func() bool { return len(s.db.look(parent.ID).outcomes) > 0 }, "a stranger to all that is held")
				}
				s.hold(time.Time{}, ids...)
				s.ended(10 * time.Second)
			})
		})
	}
}

// A row that one session after the other locks is never free for a try that does not wait. Its
// outcome waits in the row's queue for locks, even while others are held for good.
func TestABusyRowsOutcomeHasItsTurn(t *testing.T) {
	play(t, 101, func(t *testing.T, s *scene) {
		ids := heldAtEnd(s, 101)
		busy := ids[50]
		s.start()
		s.pass(100 * time.Millisecond)
		s.hold(forever(), slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return id == busy })...)
		s.db.change(busy, func(r *row) { r.busy = true })
		s.until(20*time.Second, func() bool { return s.db.look(busy).terminal() }, "the busy row")
		s.hold(time.Time{}, ids...)
		s.ended(time.Minute)
	})
}

// Stop waits for outcomes that are held while the worker stops, and then leaves them to their
// leases.
func TestStopWaitsForHeldOutcomes(t *testing.T) {
	for _, freed := range []bool{true, false} {
		t.Run(fmt.Sprint("freed ", freed), func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				ids := heldAtEnd(s, 2)
				p := s.start()
				s.pass(100 * time.Millisecond)
				s.hold(forever(), ids...)
				s.pass(10 * time.Second)
				if freed {
					time.AfterFunc(20*time.Second, func() { s.hold(time.Time{}, ids...) })
				}
				took, err := p.stop()
				if freed {
					require.NoError(t, err)
					require.Less(t, took, 21*time.Second)
					require.Empty(t, s.left())
					return
				}
				require.ErrorContains(t, err, "2 steps")
				require.Equal(t, s.config.DrainTimeout+s.config.DrainGrace, took)
				require.ElementsMatch(t, ids, s.left())
			})
		})
	}
}

// If Postgres refuses an outcome that was held, the outcome goes to the handler, in a slot.
func TestAHeldOutcomeThatIsRefusedIsHandledInASlot(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		handlers, failed := handled(s)
		first := s.db.insert()
		s.config.NoReaper = true
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.ID != first.ID {
				return takes(time.Minute)(ctx, nil, c)
			}
			pace.Sleep(ctx, 500*time.Millisecond)
			return &step.Commit{Kind: step.Done, Result: []byte(`"` + poison + `"`)}, nil
		}
		s.start()
		s.pass(100 * time.Millisecond)
		s.hold(forever(), first.ID)
		s.pass(5 * time.Second)
		second := s.db.insert()
		s.pass(2 * time.Second)
		require.Len(t, s.witness.runs(second.ID), 1, "it has the slot")
		s.hold(time.Time{}, first.ID)
		s.pass(10 * time.Second)
		require.Zero(t, *handlers, "the slot is taken")
		s.ended(2 * time.Minute)
		require.Equal(t, 1, *handlers)
		require.Error(t, *failed)
		require.Len(t, s.witness.runs(first.ID), 1)
		require.Equal(t, "handled", s.db.look(first.ID).err)
	})
}

// A claim that its outcome keeps cannot go on without a slot, so it is given back when the outcome
// is durable.
func TestAKeptClaimThatWasHeldIsGivenBack(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		r := s.db.insert()
		s.config.NoReaper = true
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, 100*time.Millisecond)
			if c.Visit == 0 {
				return next(), nil
			}
			return done(), nil
		}
		s.start()
		s.pass(50 * time.Millisecond)
		s.hold(forever(), r.ID)
		s.pass(time.Minute)
		require.Empty(t, s.db.look(r.ID).outcomes)
		s.hold(time.Time{}, r.ID)
		s.ended(10 * time.Second)
		got := s.db.look(r.ID)
		require.Equal(t, []step.Kind{step.Next, step.Done}, got.outcomes)
		require.EqualValues(t, 2, got.Token, "claimed anew")
		require.Zero(t, got.Attempt+got.Crashes)
		require.Len(t, s.witness.runs(r.ID), 2)
		require.Equal(t, fsm.StatusDone, got.status)
	})
}

// Beyond a bounded number of held outcomes, or of their bytes, outcomes keep their slots.
func TestHeldOutcomesAreBounded(t *testing.T) {
	for name, bytes := range map[string]int{"number": 2, "bytes": outsideBytes / 3} {
		t.Run(name, func(t *testing.T) {
			play(t, 6, func(t *testing.T, s *scene) {
				ids := heldAtEnd(s, 6)
				result := []byte(`"` + strings.Repeat("x", bytes-2) + `"`)
				usually := s.run
				s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
					out, err := usually(ctx, p, c)
					if slices.Contains(ids, c.ID) && out != nil {
						out.Result = result
					}
					return out, err
				}
				p := s.player()
				if name == "number" {
					p.flights.outside.heldMost, p.queues["q"].committingMost = 3, 0
				}
				p.Start()
				s.pass(100 * time.Millisecond)
				s.hold(forever(), ids...)
				s.pass(10 * time.Second)
				require.Equal(t, 3, p.Activity().Queues[0].Running)
				require.Equal(t, 3, p.Activity().Queues[0].Held)
				s.hold(time.Time{}, ids...)
				s.ended(2 * time.Second)
				s.pass(time.Second)
				require.Zero(t, p.flights.outside.held.Load()+p.flights.outside.bytes.Load())
				require.Zero(t, p.Activity().Queues[0].Held+p.Activity().Queues[0].Running)
			})
		})
	}
}

// Outcomes whose children's correlation keys another session is inserting wait with growing pauses,
// and do not delay tries of later ones.
func TestHeldKeysDelayNobodyElse(t *testing.T) {
	play(t, 100, func(t *testing.T, s *scene) {
		s.db.keys = map[string]bool{"held": true}
		s.config.NoReaper = true
		s.config.Queues["other"] = usual(1)
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.Depth > 0 || c.Visit > 0 {
				return done(), nil
			}
			key := "held"
			if c.Queue == "other" {
				key = "free"
			}
			return &step.Commit{Kind: step.Children, Step: "s", State: []byte("{}"), Spawn: []step.Spec{{Key: key}}}, nil
		}
		for range 100 {
			s.db.insert()
		}
		p := s.start()
		s.pass(10 * time.Second)
		require.Len(t, s.left(), 100)
		for range 10 {
			parent := s.db.insert(in("other"))
			p.Nudge("other")
			s.until(time.Second, func() bool { return len(s.db.look(parent.ID).outcomes) > 0 }, "its children's key is free")
		}
		unkeyed := s.db.insert()
		s.db.change(unkeyed.ID, func(r *row) { r.Depth = 1 })
		s.until(3*time.Second, func() bool { return s.db.look(unkeyed.ID).terminal() }, "another of the queue")
		s.db.change(1, func(*row) { delete(s.db.keys, "held") })
		s.ended(10 * time.Second)
	})
}

// A step's own transaction cannot stay open until its row is free, so its writes are rolled back.
// The step still leaves its slot, and runs again when it can.
func TestAStepsOwnTransactionThatIsHeldLeavesItsSlot(t *testing.T) {
	for _, parent := range []bool{false, true} {
		t.Run(fmt.Sprint("its parent ", parent), func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				joins := s.db.insert(in("nobody's"))
				s.db.change(joins.ID, func(r *row) { r.status, r.pending = fsm.StatusAwaitingChildren, 2 })
				first := s.db.insert(child(joins.ID))
				held := first.ID
				if parent {
					held = joins.ID
				}
				s.config.NoReaper = true
				functions := 0
				s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
					return &step.Commit{Within: func(context.Context, any) (*step.Commit, error) {
						functions++
						return done(), nil
					}}, nil
				}
				s.hold(forever(), held)
				if !parent {
					s.hold(time.Time{}, held)
					s.db.weather.latency = func(verb string) time.Duration {
						if verb == "begin" && functions == 0 {
							return 200 * time.Millisecond
						}
						return 0
					}
				}
				p := s.start()
				s.pass(100 * time.Millisecond)
				s.hold(forever(), held)
				s.pass(5 * time.Second)
				require.Equal(t, 1, functions, "it does not run again while that would be in vain")
				require.Equal(t, 1, p.Activity().Queues[0].Held)
				other := s.db.insert()
				s.until(2*time.Second, func() bool { return s.db.look(other.ID).terminal() }, "another of the queue")
				s.pass(10 * time.Second)
				s.hold(time.Time{}, held)
				s.until(2*time.Second, func() bool { return s.db.look(first.ID).terminal() }, "when its row is free")
				require.Equal(t, 3, functions)
				require.Equal(t, []step.Kind{step.Done}, s.db.look(first.ID).outcomes)
				require.EqualValues(t, 1, s.db.look(first.ID).Token, "one claim")
				require.Zero(t, p.Activity().Queues[0].Held)
			})
		})
	}
}

// A function that waits in vain as long as the engine lets it is repeated however often, and leaves
// its slot in between. A function that sets a shorter limit means it.
func TestAFunctionThatWaitsInVainIsNotTheStepsError(t *testing.T) {
	for _, limited := range []bool{false, true} {
		t.Run(fmt.Sprint("its own limit ", limited), func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				handlers, _ := handled(s)
				const held = 3 * rerunMost
				functions := 0
				first := s.db.insert()
				s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
					return &step.Commit{Within: func(ctx context.Context, _ any) (*step.Commit, error) {
						if info, _ := fsm.InfoFrom(ctx); int64(info.ID) != first.ID {
							return done(), nil
						}
						if functions++; functions > held {
							return done(), nil
						}
						wait := 10 * time.Second // as long as it is let
						if limited {
							wait = time.Millisecond
						}
						pace.Sleep(ctx, wait)
						return nil, refusal("55P03")
					}}, nil
				}
				s.start()
				if limited {
					s.ended(time.Minute)
					require.Equal(t, 1, *handlers)
					return
				}
				s.pass(time.Minute)
				for range 5 {
					s.db.insert()
				}
				s.until(time.Minute, func() bool { return len(s.left()) == 1 }, "others of the queue")
				s.ended(10 * time.Minute)
				require.Zero(t, *handlers)
				require.Equal(t, held+1, functions)
				require.EqualValues(t, 1, s.db.look(first.ID).Token, "one claim")
			})
		})
	}
}
