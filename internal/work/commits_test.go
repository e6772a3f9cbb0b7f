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
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/worker"
)

// together makes n instances end at the same moment, so that their outcomes meet in the committer.
func together(s *scene, n int, edits ...func(r *row)) {
	q := usual(n)
	s.config.Queues["q"] = q
	s.config.NoReaper = true
	for range n {
		s.db.insert(edits...)
	}
	s.run = takes(time.Second)
	s.db.weather.latency = func(verb string) time.Duration {
		if verb == "commit" {
			return 10 * time.Millisecond
		}
		return 0
	}
}

func TestOutcomesAreCommittedInGroups(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 400)
		s.start()
		s.ended(time.Minute)
		require.LessOrEqual(t, len(s.db.commits), 6, "a lane takes what has gathered")
		for _, v := range s.witness.runs() {
			require.LessOrEqual(t, v.durable.Sub(v.to), 30*time.Millisecond)
		}
	})
}

func TestALoneOutcomeIsCommittedAtOnce(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		r := s.db.insert()
		s.start()
		s.ended(time.Minute)
		v := s.witness.runs(r.ID)[0]
		require.Equal(t, v.to, v.durable, "no timer gathers")
	})
}

// The committer finds one poisonous entry among a hundred by bisection. The others commit, and none
// of them twice.
func TestPoisonIsIsolated(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 100)
		var handled []error
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, time.Second)
			if c.ID == 37 {
				return &step.Commit{Kind: step.Done, Result: []byte(`"` + poison + `"`)}, nil
			}
			return done(), nil
		}
		s.machine.OnError = func(_ context.Context, c *step.Claim, failed error) (*step.Commit, error) {
			require.EqualValues(t, 37, c.ID)
			handled = append(handled, failed)
			return &step.Commit{Kind: step.Fail, Err: "handled", Failure: "decided"}, nil
		}
		s.start()
		s.ended(2 * time.Second)
		require.Len(t, handled, 1)
		var refused *fsm.OutcomeError
		require.ErrorAs(t, handled[0], &refused)
		require.Equal(t, "commit", refused.Field)
		require.Equal(t, "handled", s.db.look(37).err)
		for id := int64(1); id <= 100; id++ {
			require.Len(t, s.db.look(id).outcomes, 1)
			require.Equal(t, id != 37, s.db.look(id).status == fsm.StatusDone)
		}
		require.LessOrEqual(t, len(s.db.commits), 2+2*7+2, "bisection, not one by one")
	})
}

func TestWhatIsRefusedTwiceFailsWithASafeText(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		handled := 0
		bad := &step.Commit{Kind: step.Next, Step: "s", State: []byte(`"` + poison + `"`)}
		s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { return bad, nil }
		s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) { handled++; return bad, nil }
		s.db.weather.instead = func(verb, _ string, _ []int64) error { return nil }
		r := s.db.insert()
		s.start()
		s.ended(time.Minute)
		require.Equal(t, 1, handled)
		got := s.db.look(r.ID)
		require.Equal(t, "error", got.failure)
		require.Contains(t, got.err, "22P02")
		require.Equal(t, []step.Kind{step.Fail}, got.outcomes)
	})
}

// While a worker is live that cannot serve an outcome, the step runs again every few seconds, as
// the same attempt. Nothing fails, and no handler is called.
func TestAnOutcomeWaitsForOlderWorkers(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
			t.Error("the handler was called")
			return &step.Commit{Kind: step.Fail}, nil
		}
		s.change(func(w *weather) { w.older = true })
		r := s.db.insert()
		s.start()
		s.pass(time.Minute)
		require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status)
		require.InDelta(t, time.Minute/olderPause, len(s.witness.runs(r.ID)), 3)
		require.NotEmpty(t, s.journal.saying("beside an older worker"))
		s.change(func(w *weather) { w.older = false })
		s.ended(time.Minute)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
		require.Zero(t, s.db.look(r.ID).Attempt)
	})
}

// If Postgres refuses even the failure, the instance is left to its lease and named in the log. Its
// slot is free for others.
func TestWhatCannotEvenFailIsLeftToItsLease(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		cursed := s.db.insert(priority(-1))
		s.witness.leased = cursed.ID
		s.db.weather.instead = func(verb, _ string, ids []int64) error {
			if verb == "commit" && slices.Contains(ids, cursed.ID) {
				return refusal("23514")
			}
			return nil
		}
		other := s.db.insert()
		s.start()
		s.pass(10 * time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(other.ID).status)
		require.Equal(t, fsm.StatusExecuting, s.db.look(cursed.ID).status)
		require.Len(t, s.journal.saying("refuses every outcome"), 1)
		s.pass(10 * time.Minute)
		require.Less(t, len(s.witness.runs(cursed.ID)), 15, "no busy loop")
		s.change(func(w *weather) { w.instead = nil })
		s.ended(10 * time.Minute)
	})
}

// A commit whose answer was lost is resolved by its mark. An applied outcome is not applied again,
// and another is sent again, even if the old backend commits only after everybody has given it up.
func TestAnUnknownCommitIsResolved(t *testing.T) {
	for name, what := range map[string]answer{"applied": lostDone, "not applied": lostNever, "applied late": lostLate} {
		t.Run(name, func(t *testing.T) {
			play(t, 0, func(t *testing.T, s *scene) {
				together(s, 50)
				s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
					if pace.Sleep(ctx, time.Second); c.Visit == 3 {
						return done(), nil
					}
					return next(), nil
				}
				var times []int
				s.config.Hooks = []worker.Hooks{{Stale: func(context.Context, worker.StaleEvent) { t.Error("taken for stale") }}}
				s.db.weather.answers = func(verb, _ string) answer {
					if verb == "commit" {
						if times = append(times, 1); len(times)%2 == 1 {
							return what
						}
					}
					return fair
				}
				s.start()
				s.ended(time.Minute)
				for id := int64(1); id <= 50; id++ {
					require.Equal(t, []step.Kind{step.Next, step.Next, step.Next, step.Done}, s.db.look(id).outcomes)
					require.Len(t, s.witness.runs(id), 4, "no visit runs twice")
				}
				require.NotEmpty(t, s.sent("resolve"))
			})
		})
	}
}

// A commit whose answer was lost still nudges, so that the instances that it made runnable do not
// wait for a poll.
func TestAResolvedCommitNudges(t *testing.T) {
	slow := usual(4)
	slow.PollMin, slow.PollMax = time.Minute, time.Minute
	for name, insert := range map[string]func(s *scene) (second int64){
		"a retry": func(s *scene) int64 {
			s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
				if c.Attempt == 0 {
					return &step.Commit{Kind: step.Retry, State: []byte("{}")}, nil
				}
				return done(), nil
			}
			r := s.db.insert()
			return r.ID
		},
		"a retry in a while": func(s *scene) int64 {
			s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
				if c.Attempt == 0 {
					return &step.Commit{Kind: step.Retry, State: []byte("{}"), Delay: 200 * time.Millisecond}, nil
				}
				return done(), nil
			}
			r := s.db.insert()
			return r.ID
		},
		"a parent": func(s *scene) int64 {
			parent := s.db.insert(in("other"), func(r *row) { r.status, r.pending = fsm.StatusAwaitingChildren, 1 })
			s.db.insert(child(parent.ID))
			return parent.ID
		},
		"the next of a key": func(s *scene) int64 {
			s.db.insert(keyed("k"))
			return s.db.insert(keyed("k"), in("other"), after(10*time.Millisecond)).ID
		},
		"the next of a key, which somebody held": func(s *scene) int64 {
			next := s.db.insert(keyed("k"))
			s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
				if c.ID != next.ID {
					s.db.change(next.ID, func(r *row) { r.held = time.Now().Add(100 * time.Millisecond) })
				}
				return done(), nil
			}
			s.db.insert(keyed("k"), priority(-1))
			return next.ID
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 0, func(t *testing.T, s *scene) {
				s.config.Queues = map[string]worker.Queue{"q": slow, "other": slow}
				lost := false
				s.db.weather.answers = func(verb, _ string) answer {
					if verb == "commit" && !lost {
						lost = true
						return lostDone
					}
					return fair
				}
				second := insert(s)
				run := s.run
				s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
					pace.Sleep(ctx, 100*time.Millisecond) // until all queues are idle
					return run(ctx, p, c)
				}
				s.start()
				s.until(time.Second, func() bool { return s.db.look(second).terminal() }, "it waits for the poll")
				require.True(t, lost)
			})
		})
	}
}

func TestTransientTroubleNeverReachesAStep(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 20)
		s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
			t.Error("the handler was called")
			return next(), nil
		}
		s.db.weather.answers = func(verb, _ string) answer {
			switch {
			case verb != "commit":
				return fair
			case time.Now().Second()%2 == 0:
				return deadlock
			default:
				return cut
			}
		}
		s.start()
		s.pass(45 * time.Minute)
		require.Less(t, len(s.db.commits), 20*45*60/3, "each of them backs off: one may be the cause")
		s.change(func(w *weather) { w.answers = nil })
		s.ended(6 * time.Second)
		for id := int64(1); id <= 20; id++ {
			require.Equal(t, fsm.StatusDone, s.db.look(id).status)
			require.Len(t, s.witness.runs(id), 1)
			require.Zero(t, s.db.look(id).Attempt+s.db.look(id).Crashes)
		}
	})
}

// An outcome whose row another session holds goes to the slow lane, and no other outcome waits for
// it.
func TestWhatIsHeldDelaysNobodyElse(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 100)
		for _, id := range []int64{3, 50, 51, 99} {
			s.db.change(id, func(r *row) { r.eligible = time.Now() })
		}
		s.start()
		s.pass(500 * time.Millisecond)
		held := []int64{3, 50, 51, 99}
		for _, id := range held {
			s.db.change(id, func(r *row) { r.held = forever() })
		}
		s.pass(600 * time.Millisecond)
		require.ElementsMatch(t, held, s.left(), "all others are durable")
		s.pass(time.Duration(tier.Size(t, "MINUTES", 10, 60, 60)) * time.Minute)
		require.ElementsMatch(t, held, s.left())
		require.NotEmpty(t, s.journal.saying("pid=4711"), "whoever holds them is named")
		for _, c := range s.db.commits {
			require.True(t, c.slow || c.from.Sub(c.to) < time.Second, "the fast lane never waits")
		}
		s.db.change(50, func(r *row) { r.held = time.Time{} })
		s.pass(30 * time.Second)
		require.ElementsMatch(t, []int64{3, 51, 99}, s.left(), "and those still held do not hold up one that is free again")
		for _, id := range held {
			s.db.change(id, func(r *row) { r.held = time.Time{} })
		}
		s.ended(30 * time.Second)
		for _, id := range held {
			require.Len(t, s.witness.runs(id), 1)
		}
	})
}

// The slow lane has few turns. While other sessions hold some rows for hours, an outcome that met a
// lock for a moment still gets through.
func TestRowsThatStayHeldDoNotFillTheSlowLane(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 10)
		s.start()
		s.pass(500 * time.Millisecond)
		for id := int64(1); id <= 6; id++ {
			s.db.change(id, func(r *row) { r.held = forever() })
		}
		s.pass(time.Minute)
		require.Len(t, s.left(), 6)
		for range 10 {
			r := s.db.insert()
			began := time.Now()
			s.running[0].Nudge("q")
			s.pass(500 * time.Millisecond)
			s.db.change(r.ID, func(r *row) { r.held = time.Now().Add(600 * time.Millisecond) })
			s.until(time.Hour, func() bool { return s.db.look(r.ID).terminal() }, "committed")
			require.Less(t, time.Since(began), 20*time.Second)
		}
		for id := int64(1); id <= 6; id++ {
			s.db.change(id, func(r *row) { r.held = time.Time{} })
		}
	})
}

// The children of one parent go to one lane, since each of two lanes would find the parent locked
// by the other.
func TestSiblingsShareALane(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		parents := []*row{s.db.insert(), s.db.insert()}
		for _, parent := range parents {
			s.db.change(parent.ID, func(r *row) { r.status, r.pending = fsm.StatusAwaitingChildren, 200 })
		}
		together(s, 200, child(parents[0].ID))
		for range 200 {
			s.db.insert(child(parents[1].ID))
		}
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.Parent != 0 {
				pace.Sleep(ctx, time.Second+time.Duration(c.ID)*100*time.Microsecond)
			}
			return done(), nil
		}
		q := s.config.Queues["q"]
		q.Concurrency = 400
		s.config.Queues["q"] = q
		s.start()
		s.ended(time.Minute)
		for i, a := range s.db.commits {
			for _, b := range s.db.commits[i+1:] {
				if b.from.Before(a.to) && a.from.Before(b.to) {
					for _, parent := range a.parents {
						require.NotContains(t, b.parents, parent, "two transactions at once join parent %d", parent)
					}
				}
			}
		}
		require.False(t, slices.ContainsFunc(s.db.commits, func(c batchSent) bool { return c.slow }))
	})
}

// Outcomes that take long have a separate lane: those with many children, and those with children
// whose keys may make the insertion wait.
func TestBulkDoesNotHoldUpTheOthers(t *testing.T) {
	play(t, 10, func(t *testing.T, s *scene) {
		s.config.RunAheadSteps = 1
		spawning := map[int64]bool{}
		s.db.weather.latency = func(verb string) time.Duration { return time.Millisecond }
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			o := done()
			if c.Visit == 0 && c.Depth == 0 && c.ID <= 6 {
				s.note(func() { spawning[c.ID] = true })
				o = &step.Commit{Kind: step.Children, Step: "s", State: []byte("{}"), Spawn: make([]step.Spec, 101)}
				if c.ID%2 == 0 {
					o.Spawn = []step.Spec{{Key: fmt.Sprint("key ", c.ID)}}
				}
			}
			return o, nil
		}
		for range 20 {
			s.db.insert()
		}
		s.start()
		s.ended(time.Minute)
		require.Len(t, spawning, 6)
		for _, c := range s.db.commits {
			if slices.ContainsFunc(c.ids, func(id int64) bool { return id <= 6 && c.from.Before(s.witness.runs(id)[1].from) }) {
				require.Len(t, c.ids, 1, "alone")
				require.False(t, c.slow, "no stranger holds anything")
			}
		}
	})
}

// A batch has a bounded number of bytes, whatever the outcomes contain. An outcome with many bytes
// goes alone, and delays no other outcome.
func TestBatchesAreBoundedByBytes(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 60)
		s.db.weather.latency = func(verb string) time.Duration {
			if verb == "commit" {
				return time.Second
			}
			return 0
		}
		mebibyte := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, time.Second)
			switch {
			case c.Depth > 0 || c.Visit > 0:
				return done(), nil
			case c.ID%10 == 0:
				return &step.Commit{Kind: step.Children, Step: "s", State: []byte("{}"), Spawn: make([]step.Spec, 9, 10)}, nil
			case c.ID%10 == 1:
				spawn := make([]step.Spec, 6)
				for i := range spawn {
					spawn[i].State = mebibyte
				}
				return &step.Commit{Kind: step.Children, Step: "s", State: []byte("{}"), Spawn: spawn}, nil
			}
			return &step.Commit{Kind: step.Done, Result: mebibyte}, nil
		}
		s.start()
		s.ended(time.Minute)
		alone, most := 0, 0
		for _, c := range s.db.commits {
			require.True(t, c.bytes <= commitBytes, "%d bytes", c.bytes)
			if c.bytes > bulkBytes && len(c.ids) == 1 {
				alone++
			}
			most = max(most, len(c.ids))
		}
		require.Equal(t, 6, alone)
		require.Greater(t, most, 10)
		for i, a := range s.db.commits {
			for _, b := range s.db.commits[i+1:] {
				if len(a.ids) == 1 && len(b.ids) == 1 && a.bytes > bulkBytes && b.bytes > bulkBytes {
					require.False(t, b.from.Before(a.to) && a.from.Before(b.to), "one at a time")
				}
			}
		}
	})
}

// Outcomes larger than a batch may be are committed one by one: together they would be more than
// one message to Postgres can hold, and each try would fail as the one before.
func TestOutcomesLargerThanABatchGoAlone(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 18)
		huge := []byte(`"` + strings.Repeat("x", commitBytes) + `"`)
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, time.Second)
			return &step.Commit{Kind: step.Done, Result: huge}, nil
		}
		s.start()
		s.ended(time.Minute)
		require.NotEmpty(t, s.db.commits)
		for _, c := range s.db.commits {
			require.Len(t, c.ids, 1, "%d bytes", c.bytes)
		}
	})
}

// An entry that makes the server itself give up each time must not affect the others in its batch.
func TestTroubleThatNeverPassesHitsItsOwnEntryOnly(t *testing.T) {
	for _, code := range []string{"57014", "40001"} { // a statement timeout, or XX000, or out of memory; a trigger that reports a conflict
		t.Run(code, func(t *testing.T) { neverPasses(t, code) })
	}
}

func neverPasses(t *testing.T, code string) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 100)
		s.db.weather.instead = func(verb, _ string, ids []int64) error {
			if verb == "commit" && slices.Contains(ids, 42) {
				return refusal(code)
			}
			return nil
		}
		s.start()
		s.until(2*time.Minute, func() bool { return len(s.left()) == 1 }, "the others")
		require.Equal(t, []int64{42}, s.left())
		again := s.db.insert()
		s.running[0].Nudge("q")
		s.until(5*time.Second, func() bool { return s.db.look(again.ID).terminal() }, "nor those that come after")
		s.change(func(w *weather) { w.instead = nil })
		s.ended(time.Minute)
		require.Len(t, s.witness.runs(42), 1)
		require.NotEmpty(t, strings.Join(s.journal.saying(code), ""))
	})
}
