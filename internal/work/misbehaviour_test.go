package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

// crimes are things that user code may do instead of returning.
var crimes = map[string]func(){
	"panic":        func() { panic("alarm") },
	"nil panic":    func() { panic(nil) }, //nolint:govet // on purpose
	"Goexit":       runtime.Goexit,
	"nil deref":    func() { var p *player; p.line.closed = time.Time{} },
	"nested panic": func() { defer func() { panic("again") }(); panic("alarm") },
}

// afterwards asserts that a worker with one slot still works.
func afterwards(t *testing.T, s *scene) {
	t.Helper()
	s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { return done(), nil }
	for range 3 {
		r := s.db.insert()
		s.running[0].Nudge("q")
		s.until(5*time.Second, func() bool { return s.db.look(r.ID).terminal() }, "the slot is lost")
	}
}

func TestAStepThatDoesNotReturnIsAnError(t *testing.T) {
	for name, crime := range crimes {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				var failed error
				s.machine.OnError = func(_ context.Context, _ *step.Claim, err error) (*step.Commit, error) {
					failed = err
					return &step.Commit{Kind: step.Fail, Failure: "decided", Err: "handled"}, nil
				}
				s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { crime(); return done(), nil }
				r := s.db.insert()
				s.start()
				s.ended(time.Second)
				require.Equal(t, "handled", s.db.look(r.ID).err)
				var p *fsm.PanicError
				require.ErrorAs(t, failed, &p)
				require.NotEmpty(t, p.Stack)
				afterwards(t, s)
			})
		})
	}
}

func TestAHandlerThatDoesNotReturnFailsTheInstance(t *testing.T) {
	for name, crime := range crimes {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				handled := 0
				s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
					handled++
					crime()
					return next(), nil
				}
				s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
					return nil, errors.New("the first error")
				}
				r := s.db.insert()
				s.start()
				s.ended(time.Second)
				require.Equal(t, 1, handled)
				got := s.db.look(r.ID)
				require.Equal(t, fsm.StatusFailed, got.status)
				require.Equal(t, "error", got.failure)
				require.Contains(t, got.err, "the first error")
				require.Contains(t, got.err, "its handler: panic: ")
				afterwards(t, s)
			})
		})
	}
}

func TestNeitherOutcomeNorErrorIsAnError(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { return nil, nil }
		r := s.db.insert()
		s.start()
		s.ended(time.Second)
		require.Contains(t, s.db.look(r.ID).err, "neither an outcome nor an error")
	})
}

// A hook only observes. Whatever it does, work goes on, and no outcome is lost.
func TestAHookThatDoesNotReturnIsForgotten(t *testing.T) {
	for name, crime := range crimes {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(t *testing.T, s *scene) {
				s.config.Hooks = []worker.Hooks{{
					Step:       func(context.Context, worker.StepEvent) { crime() },
					Pick:       func(context.Context, worker.PickEvent) { crime() },
					Saturation: func(context.Context, worker.SaturationEvent) { crime() },
					Contended:  func(context.Context, worker.ContendedEvent) { crime() },
					Commit:     func(context.Context, worker.CommitEvent) { crime() },
					Reap:       func(context.Context, worker.ReapEvent) { crime() },
					Stale:      func(context.Context, worker.StaleEvent) { crime() },
					Drain:      func(context.Context, worker.DrainEvent) { crime() },
					Prune:      func(context.Context, worker.PruneEvent) { crime() },
					Fire:       func(context.Context, worker.FireEvent) { crime() },
				}}
				s.config.Fire = func(_ context.Context, _ time.Time, told func(worker.FireEvent)) (time.Duration, error) {
					told(worker.FireEvent{Schedule: "nightly", Inserted: 1})
					return time.Second, nil
				}
				s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
					if c.Visit == 3 {
						return done(), nil
					}
					return next(), nil
				}
				stalled := s.haunted("k")
				contended := s.db.insert(keyed("k"))
				orphan := s.db.insert(func(r *row) { r.status, r.worker, r.lease = fsm.StatusExecuting, "gone", time.Now() })
				for range 20 {
					s.db.insert()
				}
				p := s.start()
				s.pass(time.Second)
				require.ElementsMatch(t, []int64{contended.ID, orphan.ID}, s.left())
				stalled.cut()
				s.pass(5 * time.Minute)
				require.Empty(t, s.left())
				require.Zero(t, s.db.look(contended.ID).Crashes)
				for id := contended.ID; id <= 22; id++ {
					require.Len(t, s.witness.runs(id), 4, "a kept claim goes on")
				}
				p.stopped()
				require.NotEmpty(t, s.journal.saying("hook"))
			})
		})
	}
}

// A claim that exceeds its limits fails without a run, since a reaper that does not know the
// machine could not fail it.
func TestClaimsOverTheirLimitsFailUnrun(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.machine.CrashLimit, s.machine.MaxAttempts = 3, 5
		crashed := s.db.insert(func(r *row) { r.Crashes = 4 })
		tired := s.db.insert(func(r *row) { r.Attempt = 5 })
		fine := s.db.insert(func(r *row) { r.Crashes, r.Attempt = 3, 4 })
		s.start()
		s.ended(time.Second)
		require.Equal(t, "crashes", s.db.look(crashed.ID).failure)
		require.Equal(t, "exhausted", s.db.look(tired.ID).failure)
		require.Equal(t, fsm.StatusDone, s.db.look(fine.ID).status)
		require.Len(t, s.witness.runs(), 1)
	})
}

// An instance at an unknown step is set aside, at no attempt's cost and once, and goes on when the
// process knows its step. Others do not wait for it.
func TestAnUnknownStepIsSetAside(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		r := s.db.insert(func(r *row) { r.Step, r.Attempt = "renamed", 3 })
		other := s.db.insert()
		s.start()
		s.pass(time.Minute)
		require.Equal(t, fsm.StatusDone, s.db.look(other.ID).status)
		aside := s.db.look(r.ID)
		require.Equal(t, []any{fsm.StatusRunnable, 4, 3, 0}, []any{aside.status, aside.lane, aside.Attempt, len(aside.outcomes)})
		require.Len(t, s.sent("set aside"), 1, "it is not claimed again and again")
		require.LessOrEqual(t, len(s.sent("claim strays")), 61, "once a second")
		s.db.change(r.ID, func(r *row) { r.Step = "s" })
		s.ended(10 * time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
	})
}

// The join waits for a database that is away, since that is not the step's error.
func TestChildrenAreReadOnceTheDatabaseIsBack(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		var children []step.Child
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			switch {
			case c.Depth > 0:
				return done(), nil
			case c.Visit == 0:
				return &step.Commit{Kind: step.Children, Step: "s", State: []byte("{}"), Spawn: make([]step.Spec, 3)}, nil
			}
			children = c.Children
			return done(), nil
		}
		s.db.weather.answers = func(verb, _ string) answer {
			if verb == "children" && len(s.db.sent) < 40 {
				return cut
			}
			return fair
		}
		r := s.db.insert()
		s.start()
		s.ended(time.Minute)
		require.Len(t, children, 3)
		require.Equal(t, []step.Kind{step.Children, step.Done}, s.db.look(r.ID).outcomes)
	})
}

// A step that reads its inbox while the database is away waits, and notices nothing else.
func TestAnInboxIsReadOnceTheDatabaseIsBack(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			_, _, err := c.Inbox(ctx, 0)
			return done(), err
		}
		reads := 0
		s.db.weather.answers = func(verb, _ string) answer {
			if verb == "inbox" {
				if reads++; reads < 10 {
					return cut
				}
			}
			return fair
		}
		r := s.db.insert()
		s.start()
		s.ended(time.Minute)
		require.Equal(t, 10, reads)
		require.Equal(t, []step.Kind{step.Done}, s.db.look(r.ID).outcomes)
	})
}

// A step's timeout has a separate cause, and is an error like others.
func TestAStepTimeoutReachesTheHandler(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		var cause error
		s.timeout = 3 * time.Second
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			o, err := takes(time.Minute)(ctx, p, c)
			cause = context.Cause(ctx)
			return o, err
		}
		s.db.insert()
		began := time.Now()
		s.start()
		s.ended(time.Minute)
		require.Equal(t, fsm.ErrStepTimeout, cause)
		require.LessOrEqual(t, time.Since(began), 3*time.Second+10*time.Millisecond)
	})
}

// cruel is an error whose methods do something other than return.
type cruel struct{ unwrap, is, as, text func() }

func (c *cruel) Error() string { c.text(); return "cruel" }
func (c *cruel) Unwrap() error { c.unwrap(); return nil }
func (c *cruel) Is(error) bool { c.is(); return false }
func (c *cruel) As(any) bool   { c.as(); return false }
func (c *cruel) but(f func(c *cruel)) error {
	nothing := func() {}
	c.unwrap, c.is, c.as, c.text = nothing, nothing, nothing, nothing
	f(c)
	return c
}

// cruelties returns errors that are dangerous to look at.
func cruelties() map[string]error {
	evil := func() { panic(&cruel{text: func() { panic(errors.New("nested")) }}) }
	return map[string]error{
		"typed nil":           (*pgconn.PgError)(nil),
		"wrapped typed nil":   fmt.Errorf("book: %w", (*pgconn.PgError)(nil)),
		"Unwrap panics":       (&cruel{}).but(func(c *cruel) { c.unwrap = func() { panic("alarm") } }),
		"Unwrap panics twice": (&cruel{}).but(func(c *cruel) { c.unwrap = evil }),
		"Is panics":           (&cruel{}).but(func(c *cruel) { c.is = func() { panic("alarm") } }),
		"As panics":           (&cruel{}).but(func(c *cruel) { c.as = func() { panic("alarm") } }),
		"Error panics":        (&cruel{}).but(func(c *cruel) { c.text = func() { panic("alarm") } }),
		"Error panics twice":  (&cruel{}).but(func(c *cruel) { c.text = evil }),
		"Unwrap is Goexit":    (&cruel{}).but(func(c *cruel) { c.unwrap = runtime.Goexit }),
		"Error is Goexit":     (&cruel{}).but(func(c *cruel) { c.text = runtime.Goexit }),
		"As is Goexit":        (&cruel{}).but(func(c *cruel) { c.as = runtime.Goexit }),
	}
}

// Whatever an error's methods do, it is the error of one step: the handler decides, or the instance
// fails, and the worker goes on.
func TestAnErrorThatMisbehavesIsOneStepsError(t *testing.T) {
	fails := func(err error) runFunc {
		return func(context.Context, *player, *step.Claim) (*step.Commit, error) { return nil, err }
	}
	for name, err := range cruelties() {
		for place, set := range map[string]func(s *scene){
			"step": func(s *scene) { s.run = fails(err) },
			"own transaction": func(s *scene) {
				decides(s, func(context.Context, int) (*step.Commit, error) { return nil, err })
			},
			"middleware": func(s *scene) {
				s.config.Around = []Around{func(ctx context.Context, _ fsm.Info, run func(context.Context) error) error {
					return errors.Join(run(ctx), err)
				}}
				s.run = fails(errors.New("first"))
			},
			"handler": func(s *scene) {
				s.run = fails(errors.New("first"))
				s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) { return nil, err }
			},
			"handler's own transaction": func(s *scene) {
				s.run = fails(errors.New("first"))
				s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
					return &step.Commit{Within: func(context.Context, any) (*step.Commit, error) { return nil, err }}, nil
				}
			},
			"step and handler": func(s *scene) {
				s.run = fails(err)
				s.machine.OnError = func(_ context.Context, _ *step.Claim, failed error) (*step.Commit, error) {
					_, _ = errors.AsType[*fsm.DecodeError](failed)
					return nil, err
				}
			},
			"panic": func(s *scene) {
				s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { panic(err) }
			},
			"retry policy": func(s *scene) {
				s.run = fails(err)
				s.machine.OnError = hidden.Machine(fsm.Declare[fsm.None, fsm.None]("m", fsm.Initial("s")).
					Define(fsm.Step("s", func(context.Context, *fsm.Visit[fsm.None, fsm.None]) (fsm.Outcome, error) { return nil, nil })).
					Retry(fsm.RetryPolicy{MaxAttempts: 1})).
					OnError
			},
		} {
			t.Run(name+" of a "+place, func(t *testing.T) {
				play(t, 1, func(t *testing.T, s *scene) {
					handled(s)
					s.config.Hooks = []worker.Hooks{{Step: func(_ context.Context, e worker.StepEvent) {
						_, _ = errors.AsType[*fsm.PanicError](e.Err)
						if e.Err != nil {
							_ = e.Err.Error()
						}
					}}}
					set(s)
					r := s.db.insert()
					s.start()
					s.ended(time.Minute)
					require.Equal(t, fsm.StatusFailed, s.db.look(r.ID).status)
					require.NotEmpty(t, s.db.look(r.ID).err)
					afterwards(t, s)
				})
			})
		}
	}
}
