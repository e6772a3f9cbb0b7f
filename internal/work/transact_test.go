package work

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// decides makes a step with its own transaction, and counts how often the step and the function
// run.
func decides(s *scene, f func(ctx context.Context, n int) (*step.Commit, error)) (steps, functions *int) {
	steps, functions = new(int), new(int)
	s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
		*steps++
		return &step.Commit{Within: func(ctx context.Context, _ any) (*step.Commit, error) {
			*functions++
			return f(ctx, *functions)
		}}, nil
	}
	return steps, functions
}

// handled makes the handler count its calls and keep the last error.
func handled(s *scene) (calls *int, last *error) {
	calls, last = new(int), new(error)
	s.machine.OnError = func(_ context.Context, _ *step.Claim, err error) (*step.Commit, error) {
		*calls, *last = *calls+1, err
		return &step.Commit{Kind: step.Fail, Failure: "decided", Err: "handled"}, nil
	}
	return calls, last
}

func TestAStepsOwnTransactionRunsOnce(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		steps, functions := decides(s, func(ctx context.Context, _ int) (*step.Commit, error) {
			info, ok := fsm.InfoFrom(ctx)
			require.True(t, ok)
			require.EqualValues(t, 1, info.ID)
			return done(), nil
		})
		var ended []int64
		s.config.Terminal = func(ids []int64) { ended = ids }
		r := s.db.insert()
		s.start()
		s.ended(time.Second)
		require.Equal(t, []int{1, 1}, []int{*steps, *functions})
		require.Equal(t, []step.Kind{step.Done}, s.db.look(r.ID).outcomes)
		require.Equal(t, []int64{r.ID}, ended)
	})
}

// It may keep its claim, like any Next.
func TestAStepsOwnTransactionRunsAhead(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		decides(s, func(_ context.Context, n int) (*step.Commit, error) {
			if n < 5 {
				return next(), nil
			}
			return done(), nil
		})
		r := s.db.insert()
		s.start()
		s.ended(time.Second)
		require.EqualValues(t, 4, s.db.look(r.ID).Visit)
		require.EqualValues(t, 1, s.db.look(r.ID).Token, "one claim")
	})
}

// An error that may be absent the next time makes the whole step run again under the same claim, as
// the same attempt, and calls no handler.
func TestWhatPassesRunsTheWholeStepAgain(t *testing.T) {
	for name, trouble := range map[string]func(s *scene, n int) error{
		"a deadlock of the function's": func(_ *scene, _ int) error { return fmt.Errorf("book: %w", refusal("40P01")) },
		"a serialization failure":      func(_ *scene, _ int) error { return refusal("40001") },
		"a deadlock of the outcome's": func(s *scene, n int) error {
			s.db.weather.answers = func(verb, _ string) answer {
				if verb == "commit" && n < 3 {
					return deadlock
				}
				return fair
			}
			return nil
		},
		"an answer that was lost, and nothing done": func(s *scene, n int) error {
			s.db.weather.answers = func(verb, _ string) answer {
				if verb == "commit" && n < 3 {
					return lostNever
				}
				return fair
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				handlers, _ := handled(s)
				steps, functions := decides(s, func(_ context.Context, n int) (*step.Commit, error) {
					s.db.mu.Lock()
					err := trouble(s, n)
					s.db.mu.Unlock()
					if err != nil && n < 3 {
						return nil, err
					}
					return done(), nil
				})
				r := s.db.insert()
				s.start()
				s.ended(time.Minute)
				require.Equal(t, []int{3, 3, 0}, []int{*steps, *functions, *handlers})
				require.Equal(t, []step.Kind{step.Done}, s.db.look(r.ID).outcomes)
				require.Zero(t, s.db.look(r.ID).Attempt)
				require.EqualValues(t, 1, s.db.look(r.ID).Token, "one claim")
			})
		})
	}
}

func TestACommitWhoseAnswerWasLostIsNotRepeated(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		for _, lost := range []answer{lostDone, lostLate} {
			steps, _ := decides(s, func(context.Context, int) (*step.Commit, error) { return done(), nil })
			answered := false
			s.db.mu.Lock()
			s.db.weather.answers = func(verb, _ string) answer {
				if verb == "commit" && !answered {
					answered = true
					return lost
				}
				return fair
			}
			s.db.mu.Unlock()
			r := s.db.insert()
			if len(s.running) == 0 {
				s.start()
			}
			s.ended(time.Minute)
			require.Equal(t, 1, *steps)
			require.Equal(t, []step.Kind{step.Done}, s.db.look(r.ID).outcomes)
		}
	})
}

// A conflict that happens every time is an error in the end.
func TestAConflictThatNeverPassesReachesTheHandler(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		handlers, last := handled(s)
		steps, _ := decides(s, func(context.Context, int) (*step.Commit, error) { return nil, refusal("40P01") })
		s.db.insert()
		s.start()
		s.ended(time.Minute)
		require.Equal(t, []int{rerunMost + 1, 1}, []int{*steps, *handlers})
		require.ErrorContains(t, *last, "40P01")
	})
}

// A row that another session keeps locked is waited for, however long, since the step is not to
// blame.
func TestAStepsOwnTransactionWaitsForAStranger(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		handlers, _ := handled(s)
		decides(s, func(context.Context, int) (*step.Commit, error) { return done(), nil })
		r := s.db.insert()
		p := s.start()
		s.pass(0)
		s.db.change(r.ID, func(r *row) { r.held = time.Now().Add(10 * time.Minute) })
		p.Nudge("q")
		s.ended(20 * time.Minute)
		require.Zero(t, *handlers)
	})
}

// In an outage the transaction does not begin, and the step does not run in vain either.
func TestAnOutageBeforeAStepsOwnTransaction(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		handlers, _ := handled(s)
		steps, functions := decides(s, func(context.Context, int) (*step.Commit, error) { return done(), nil })
		away := time.Now().Add(40 * time.Second)
		s.db.weather.answers = func(verb, _ string) answer {
			if verb == "begin" && time.Now().Before(away) {
				return cut
			}
			return fair
		}
		s.db.insert()
		s.start()
		s.ended(2 * time.Minute)
		require.Equal(t, []int{1, 1, 0}, []int{*steps, *functions, *handlers})
	})
}

func TestAFunctionsErrorReachesTheHandler(t *testing.T) {
	broke := errors.New("insufficient funds")
	for name, crime := range map[string]func(ctx context.Context) error{
		"error":   func(context.Context) error { return broke },
		"refused": func(context.Context) error { return fmt.Errorf("book: %w", refusal("23505")) },
		"raised":  func(context.Context) error { return refusal("P0001") },
		"aborted": func(context.Context) error { return refusal("25P02") },
		"panic":   func(context.Context) error { panic("alarm") },
		"Goexit":  func(context.Context) error { runtime.Goexit(); return nil },
		"timeout": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				s.timeout = 10 * time.Second
				handlers, last := handled(s)
				steps, _ := decides(s, func(ctx context.Context, _ int) (*step.Commit, error) {
					if err := crime(ctx); err != nil {
						return nil, err
					}
					return done(), nil
				})
				r := s.db.insert()
				s.start()
				s.ended(time.Minute)
				require.Equal(t, []int{1, 1}, []int{*steps, *handlers})
				require.Equal(t, "handled", s.db.look(r.ID).err)
				if name == "timeout" {
					require.ErrorIs(t, *last, fsm.ErrStepTimeout)
				}
				afterwards(t, s)
			})
		})
	}
}

// The handler may also have its own transaction. If that fails, nothing is left to call.
func TestAHandlersOwnTransaction(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails ", fails), func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) { return nil, errors.New("first") }
				var calls int
				s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
					return &step.Commit{Within: func(context.Context, any) (*step.Commit, error) {
						switch calls++; {
						case calls == 1:
							return nil, refusal("40001")
						case fails:
							return nil, errors.New("second")
						}
						return done(), nil
					}}, nil
				}
				r := s.db.insert()
				s.start()
				s.ended(time.Minute)
				require.Equal(t, 2, calls)
				if fails {
					require.Equal(t, "first; its handler: second", s.db.look(r.ID).err)
					require.Equal(t, "error", s.db.look(r.ID).failure)
				} else {
					require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
				}
			})
		})
	}
}

// If Postgres refuses the outcome, the handler decides once. The second time the instance fails.
func TestARefusedOutcomeOfAStepsOwnTransaction(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		poisoned := func(context.Context, any) (*step.Commit, error) {
			return &step.Commit{Kind: step.Done, Result: []byte(`"` + poison + `"`)}, nil
		}
		s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
			return &step.Commit{Within: poisoned}, nil
		}
		handlers := 0
		s.machine.OnError = func(_ context.Context, _ *step.Claim, err error) (*step.Commit, error) {
			handlers++
			require.ErrorAs(t, err, new(*fsm.OutcomeError))
			return &step.Commit{Within: poisoned}, nil
		}
		r := s.db.insert()
		s.start()
		s.ended(time.Minute)
		require.Equal(t, 1, handlers)
		require.Equal(t, "error", s.db.look(r.ID).failure)
		require.Contains(t, s.db.look(r.ID).err, "refused by Postgres")
	})
}

// If the claim is over, the function is not even called.
func TestAZombiesFunctionIsNotCalled(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.config.NoReaper = true
		r := s.db.insert()
		var functions int
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			s.db.change(c.ID, func(r *row) { r.Token++ })
			return &step.Commit{Within: func(context.Context, any) (*step.Commit, error) { functions++; return done(), nil }}, nil
		}
		s.start()
		s.until(time.Minute, func() bool { return len(s.journal.saying("too late")) == 1 }, "not stale")
		require.Zero(t, functions)
		require.Empty(t, s.db.look(r.ID).outcomes)
		s.db.change(r.ID, func(r *row) { r.status = fsm.StatusDone })
	})
}

// A deploy happens in the middle of the function. Its error is not the step's, and costs no
// attempt.
func TestADrainDuringAStepsOwnTransaction(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		handlers, _ := handled(s)
		_, functions := decides(s, func(ctx context.Context, n int) (*step.Commit, error) {
			if n == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return done(), nil
		})
		r := s.db.insert()
		p := s.start()
		s.pass(10 * time.Millisecond)
		require.Equal(t, 1, *functions)
		p.stopped()
		require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status)
		require.Zero(t, s.db.look(r.ID).Attempt)
		s.start()
		s.ended(time.Minute)
		require.Zero(t, *handlers)
	})
}
