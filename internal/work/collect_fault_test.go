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
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

// A failure of the call costs each instance an attempt. One that makes each call fail meets ever
// fewer others, and none of them in the last attempt that they have.
func TestAPoisonousInstanceFailsAloneInTheEnd(t *testing.T) {
	for _, c := range []struct{ rows, attempts int }{{64, 20}, {64, 3}, {64, 2}, {200, 0}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			play(t, 4, func(t *testing.T, s *scene) {
				retrying(s, c.attempts)
				var bad int64
				most := map[int]int{} // size of the largest call, by attempt
				calls := batched(s, 64, 10*time.Second, func(_ context.Context, members []step.Member) []step.Decided {
					s.note(func() {
						a := members[0].Claim.Attempt
						most[a] = max(most[a], len(members))
					})
					for _, m := range members {
						if m.Claim.ID == bad && (c.attempts > 0 || m.Claim.Attempt < 10) {
							return failAll(members, errors.New("poisoned"))
						}
					}
					return each(members, done())
				})
				for range c.rows {
					s.db.insert(atBatch)
				}
				bad = 7
				s.start()
				s.ended(time.Hour)
				for _, r := range s.db.all() {
					if r.ID == bad && c.attempts > 0 {
						require.Equal(t, string(fsm.FailureExhausted), r.failure)
					} else {
						require.Equal(t, fsm.StatusDone, r.status, r.ID)
						require.True(t, r.ID == bad || r.Attempt <= 3, "instance %d ran %d times", r.ID, r.Attempt+1)
					}
				}
				for attempt, n := range most {
					require.LessOrEqual(t, n, max(1, 64>>(2*attempt)))
					if c.attempts > 0 && attempt+1 == c.attempts {
						require.Equal(t, 1, n)
					}
				}
				require.Less(t, len(*calls), 150)
			})
		})
	}
}

// A call that asks to run again, since a service that it needs is away, costs no instance an
// attempt, and its batches stay as large as they are.
func TestABatchThatAsksToRunAgainIsNoSmaller(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		retrying(s, 20)
		away := true
		calls := batched(s, 20, 2*time.Second, func(_ context.Context, members []step.Member) []step.Decided {
			if away {
				away = false
				return failAll(members, &fsm.BatchError{Size: len(members), Err: fsm.Again(time.Second)})
			}
			return each(members, done())
		})
		for range 20 {
			s.db.insert(atBatch)
		}
		s.start()
		s.ended(time.Minute)
		require.Equal(t, []int{20, 20}, sizes(*calls))
		for _, r := range s.db.all() {
			require.Zero(t, r.Attempt)
		}
	})
}

func TestAPanicAndAnEndedGoroutineFailTheWholeBatch(t *testing.T) {
	for name, fail := range map[string]func(){"goexit": runtime.Goexit, "panic": func() { panic("at the disco") }} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				retrying(s, 20)
				var seen []error
				handler := s.machine.OnError
				s.machine.OnError = func(ctx context.Context, c *step.Claim, err error) (*step.Commit, error) {
					s.note(func() { seen = append(seen, err) })
					return handler(ctx, c, err)
				}
				calls := batched(s, 10, time.Second, func(_ context.Context, members []step.Member) (out []step.Decided) {
					if members[0].Claim.Attempt == 0 {
						if name == "panic" { // package fsm turns it into an error
							return failAll(members, &fsm.PanicError{Value: "at the disco"})
						}
						fail()
					}
					return each(members, done())
				})
				for range 10 {
					s.db.insert(atBatch)
				}
				s.start()
				s.ended(time.Minute)
				require.Len(t, seen, 10)
				for _, err := range seen {
					var panicked *fsm.PanicError
					require.ErrorAs(t, err, &panicked)
				}
				require.Equal(t, 1, s.witness.runs(3)[1].claim.Attempt)
				require.GreaterOrEqual(t, len(*calls), 6, "fives and twos, then")
			})
		})
	}
}

// A change of one instance while the call runs changes nothing for the others.
func TestAMemberThatIsTakenAwayLeavesTheOthersAlone(t *testing.T) {
	for name, take := range map[string]struct {
		change func(r *row)
		cause  error
	}{
		"cancelled":          {byOperator, fsm.ErrCancelled},
		"claimed by another": {func(r *row) { r.Token, r.worker, r.lease = r.Token+1000, "another", time.Now().Add(time.Hour) }, fsm.ErrLeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				var cause, whole error
				calls := batched(s, 3, time.Second, func(ctx context.Context, members []step.Member) []step.Decided {
					pace.Sleep(context.WithoutCancel(ctx), 50*time.Second)
					s.note(func() { cause, whole = context.Cause(members[1].Context), ctx.Err() })
					return each(members, done())
				})
				for range 3 {
					s.db.insert(atBatch)
				}
				s.start()
				s.pass(10 * time.Second)
				s.db.change(2, take.change)
				s.until(time.Minute, func() bool { return len(*calls) == 1 && s.db.look(3).terminal() }, "the others end")
				require.Equal(t, fsm.StatusDone, s.db.look(1).status)
				require.Empty(t, s.db.look(2).outcomes, "the fence refuses it")
				s.note(func() {
					require.Equal(t, take.cause, cause)
					require.NoError(t, whole, "the call goes on for the others")
				})
				require.Empty(t, s.journal.saying("does not listen"), "it is not a zombie as long as the call works for others")
				s.db.change(2, byOperator)
			})
		})
	}
}

// The call's context ends with the last of its instances, or by the step's timeout.
func TestTheContextOfACallEndsWithTheLastInstance(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(s *scene, p *player)
		cause error
	}{
		"all cancelled": {func(s *scene, _ *player) {
			for id := range int64(3) {
				s.db.change(id+1, byOperator)
			}
		}, fsm.ErrCancelled},
		"drained": {func(_ *scene, p *player) { _, _ = p.stop() }, fsm.ErrDraining},
		"timeout": {func(s *scene, _ *player) { s.pass(40 * time.Second) }, fsm.ErrStepTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				if name == "timeout" {
					s.timeout = 45 * time.Second
				}
				calls := batched(s, 3, time.Second, func(ctx context.Context, members []step.Member) []step.Decided {
					<-ctx.Done()
					return failAll(members, ctx.Err())
				})
				for range 3 {
					s.db.insert(atBatch)
				}
				p := s.start()
				s.pass(10 * time.Second)
				c.end(s, p)
				s.pass(time.Minute)
				s.note(func() { require.Equal(t, c.cause, (*calls)[0].ctx) })
				for _, r := range s.db.all() {
					switch name {
					case "drained":
						require.Equal(t, fsm.StatusRunnable, r.status)
						require.Zero(t, r.Attempt+r.Crashes)
					default:
						require.Equal(t, fsm.StatusFailed, r.status)
					}
				}
			})
		})
	}
}

func TestAMemberOverItsDeadlineStillEnds(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		retrying(s, 20)
		batched(s, 3, time.Second, func(ctx context.Context, members []step.Member) []step.Decided {
			pace.Sleep(ctx, 10*time.Second)
			decided := each(members, done())
			decided[1] = step.Decided{Err: errors.New("late")}
			return decided
		})
		for range 3 {
			s.db.insert(atBatch, func(r *row) { r.Deadline = time.Now().Add(5 * time.Second) })
		}
		waiting := s.db.insert(atBatch, labelled("x"), func(r *row) { r.Deadline = time.Now().Add(500 * time.Millisecond) })
		byLabel(s)
		s.batch.Within = 2 * time.Second
		s.start()
		s.ended(time.Minute)
		require.Equal(t, fsm.StatusDone, s.db.look(1).status, "it ended by its step, while nothing cancelled that")
		require.Equal(t, string(fsm.FailureDeadline), s.db.look(2).failure, "no retry follows")
		require.Equal(t, string(fsm.FailureDeadline), s.db.look(waiting.ID).failure, "it was collected")
		require.Empty(t, s.witness.runs(waiting.ID))
	})
}
