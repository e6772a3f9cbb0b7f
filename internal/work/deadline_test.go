package work

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

func until(d time.Duration) func(*row) { return func(r *row) { r.Deadline = time.Now().Add(d) } }

// The sweep fails every waiting instance within a second after its deadline, whatever it waits for.
func TestInstancesOverTheirDeadlineFail(t *testing.T) {
	for name, waits := range map[string]func(r *row){
		"for its time":     func(r *row) { r.eligible = time.Now().Add(time.Hour) },
		"for a signal":     func(r *row) { r.status, r.deadline = fsm.StatusAwaitingSignal, time.Now().Add(time.Hour) },
		"for its children": func(r *row) { r.status, r.pending = fsm.StatusAwaitingChildren, 1 },
		"for its machine":  func(r *row) { r.Machine = "unknown" },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				var ended []int64
				var hooked []int
				s.config.Terminal = func(ids []int64) { s.note(func() { ended = append(ended, ids...) }) }
				s.config.Hooks = []worker.Hooks{{Expire: func(_ context.Context, e worker.ExpireEvent) { s.note(func() { hooked = append(hooked, e.Failed) }) }}}
				r := s.db.insert(until(10*time.Second), waits)
				s.start()
				s.pass(10*time.Second - time.Millisecond)
				require.False(t, s.db.look(r.ID).terminal())
				require.Empty(t, s.sent("expire"), "no statement where there is nothing to do")
				s.pass(time.Second + 10*time.Millisecond)
				require.Equal(t, string(fsm.FailureDeadline), s.db.look(r.ID).failure)
				require.Equal(t, []int64{r.ID}, ended)
				require.Equal(t, []int{1}, hooked)
				s.pass(time.Minute)
				require.Len(t, s.sent("expire"), 1)
			})
		})
	}
}

// The context of a step ends at the deadline, with a separate cause. The step decides what to do
// then.
func TestAStepIsToldOfTheDeadline(t *testing.T) {
	failure := func(r *row) string { return r.failure }
	for name, c := range map[string]struct {
		out   *step.Commit
		err   error
		wants string
	}{
		"an error": {nil, errors.New("not now"), string(fsm.FailureDeadline)},
		"a retry":  {&step.Commit{Kind: step.Retry, Err: "later"}, nil, string(fsm.FailureDeadline)},
		"again":    {&step.Commit{Kind: step.Again}, nil, string(fsm.FailureDeadline)},
		"progress": {next(), nil, string(fsm.FailureDeadline)},
		"done":     {done(), nil, ""},
		"a fail":   {&step.Commit{Kind: step.Fail, Err: "no", Failure: string(fsm.FailureDecided)}, nil, string(fsm.FailureDecided)},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				var cause error
				var at time.Time
				s.run = func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
					deadline, ok := ctx.Deadline()
					require.True(t, ok)
					at = deadline
					pace.Sleep(ctx, time.Hour)
					cause = context.Cause(ctx)
					return c.out, c.err
				}
				s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
					t.Error("the handler was called")
					return next(), nil
				}
				r := s.db.insert(until(10 * time.Second))
				s.start()
				s.pass(10*time.Second + 50*time.Millisecond)
				require.Equal(t, fsm.ErrDeadline, cause)
				require.WithinDuration(t, r.Deadline, at, 20*time.Millisecond)
				require.False(t, at.Before(r.Deadline), "never before")
				require.True(t, s.db.look(r.ID).terminal(), "at once")
				require.Equal(t, c.wants, failure(s.db.look(r.ID)))
				require.Len(t, s.witness.runs(r.ID), 1)
				if c.err != nil {
					require.Contains(t, s.db.look(r.ID).err, "over its deadline of")
					require.Contains(t, s.db.look(r.ID).err, "at step s, executing: not now")
				}
			})
		})
	}
}

// A handler over the deadline still decides; only a retry, which would begin anew, is replaced.
func TestAHandlerOverTheDeadline(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { return nil, errors.New("first") }
		s.machine.OnError = func(ctx context.Context, _ *step.Claim, _ error) (*step.Commit, error) {
			pace.Sleep(ctx, time.Hour)
			return nil, errors.New("second")
		}
		r := s.db.insert(until(10 * time.Second))
		s.start()
		s.ended(11 * time.Second)
		require.Equal(t, string(fsm.FailureDeadline), s.db.look(r.ID).failure)
		require.Contains(t, s.db.look(r.ID).err, "executing: first; its handler: second")
	})
}

// Unbounded run-ahead also ends at the deadline.
func TestAKeptClaimEndsAtTheDeadline(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.config.RunAheadFor, s.config.RunAheadSteps = time.Hour, 1_000_000
		s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
			pace.Sleep(context.Background(), 100*time.Millisecond)
			return next(), nil
		}
		r := s.db.insert(until(10 * time.Second))
		s.start()
		s.ended(10*time.Second + 200*time.Millisecond)
		require.Equal(t, string(fsm.FailureDeadline), s.db.look(r.ID).failure)
		require.InDelta(t, 100, len(s.witness.runs(r.ID)), 2)
	})
}

// A step that ignores the end of its context loses nothing: the heartbeat extends its lease, and
// its outcome counts.
func TestAStepDeafToItsDeadlineKeepsItsClaim(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		var zombies []fsm.Info
		s.config.Hooks = []worker.Hooks{{Zombie: func(_ context.Context, e worker.ZombieEvent) {
			s.note(func() { zombies = append(zombies, e.Instance) })
		}}}
		s.run = deaf(3 * time.Minute)
		r := s.db.insert(until(10 * time.Second))
		s.start()
		s.pass(2 * time.Minute)
		require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status)
		s.note(func() {
			require.Len(t, zombies, 1)
			require.Equal(t, fsm.ID(r.ID), zombies[0].ID)
		})
		require.Len(t, s.journal.saying("does not listen"), 1)
		s.pass(2 * time.Minute)
		require.Equal(t, []step.Kind{step.Done}, s.db.look(r.ID).outcomes)
		require.Zero(t, s.db.look(r.ID).Crashes)
	})
}

// A step that goes on after its own timeout is counted once, whatever else its claim does. The
// fence treats it like any other: its outcome counts while its claim holds.
func TestAStepDeafToItsTimeoutIsCounted(t *testing.T) {
	for name, taken := range map[string]bool{"its claim holds": false, "its claim is another's": true} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				var zombies, stale int
				s.config.Hooks = []worker.Hooks{{
					Zombie: func(context.Context, worker.ZombieEvent) { s.note(func() { zombies++ }) },
					Stale:  func(context.Context, worker.StaleEvent) { s.note(func() { stale++ }) },
				}}
				s.timeout = time.Second
				s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
					if c.Visit > 0 {
						return done(), nil
					}
					pace.Sleep(context.WithoutCancel(ctx), time.Minute)
					require.Equal(t, fsm.ErrStepTimeout, context.Cause(ctx))
					return next(), nil
				}
				counts := func() (n, m int) {
					s.note(func() { n, m = zombies, stale })
					return n, m
				}
				r := s.db.insert()
				s.start()
				s.pass(9 * time.Second)
				n, _ := counts()
				require.Zero(t, n, "it may still notice")
				s.pass(30 * time.Second)
				n, _ = counts()
				require.Equal(t, 1, n)
				if taken {
					s.db.change(r.ID, func(r *row) { r.status, r.Visit = fsm.StatusDone, 7 })
				}
				s.pass(time.Minute)
				n, late := counts()
				require.Equal(t, 1, n)
				require.Equal(t, taken, late == 1)
				require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
			})
		})
	}
}

// A claim that waits for a slot, or for its partition key, fails at the deadline without either.
func TestAClaimOverItsDeadlineNeedsNoSlot(t *testing.T) {
	for name, edits := range map[string][]func(*row){"slot": {}, "key": {keyed("k")}} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				s.config.Queues["q"] = worker.Queue{Concurrency: 1, Buffer: 3, PollMin: 250 * time.Millisecond, PollMax: time.Second}
				s.run = takes(10 * time.Minute)
				if name == "key" { // a stalled process has it
					s.haunted("k")
				} else {
					s.db.insert()
				}
				r := s.db.insert(append(edits, until(10*time.Second))...)
				p := s.start()
				s.pass(9 * time.Second)
				require.Equal(t, fsm.StatusExecuting, s.db.look(r.ID).status, "claimed")
				s.pass(12 * time.Second)
				require.Equal(t, string(fsm.FailureDeadline), s.db.look(r.ID).failure)
				require.Empty(t, s.witness.runs(r.ID))
				require.Zero(t, s.db.look(r.ID).Crashes)
				_, _ = p.stop()
			})
		})
	}
}

// A step's own transaction does not begin after the deadline, and rolls back if the deadline
// passes.
func TestAnOwnTransactionOverTheDeadline(t *testing.T) {
	for name, late := range map[string]bool{"begun": false, "not begun": true} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				called := false
				s.run = func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
					if late {
						pace.Sleep(ctx, time.Hour)
					}
					return &step.Commit{Within: func(ctx context.Context, _ any) (*step.Commit, error) {
						called = true
						pace.Sleep(ctx, time.Hour)
						return nil, context.Cause(ctx)
					}}, nil
				}
				r := s.db.insert(until(10 * time.Second))
				s.start()
				s.ended(11 * time.Second)
				require.Equal(t, string(fsm.FailureDeadline), s.db.look(r.ID).failure)
				require.Equal(t, !late, called)
			})
		})
	}
}

// A sweep that takes long, since it passes over locked rows, pauses in proportion.
func TestALongSweepOfDeadlinesPauses(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		r := s.db.insert(until(time.Second), after(time.Hour), func(r *row) { r.held = time.Now().Add(time.Hour) })
		s.change(func(w *weather) {
			w.latency = func(verb string) time.Duration {
				if verb == "expire" {
					return 2 * time.Second
				}
				return 0
			}
		})
		s.start()
		s.pass(2 * time.Minute)
		require.InDelta(t, 6, len(s.sent("expire")), 1)
		s.db.change(r.ID, func(r *row) { r.Deadline = time.Time{} })
	})
}

// A row that Postgres refuses to fail is logged, and delays no other.
func TestADeadlineThatCannotBeMet(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		r := s.db.insert(until(time.Second), after(time.Hour))
		s.db.poisoned = r.ID
		other := s.db.insert(until(90*time.Second), after(time.Hour))
		s.start()
		s.pass(92 * time.Second)
		require.Equal(t, fsm.StatusFailed, s.db.look(other.ID).status)
		require.Len(t, s.journal.saying("until it is repaired by hand"), 2, "once a minute")
		s.db.change(r.ID, func(r *row) { r.Deadline = time.Time{} })
	})
}
