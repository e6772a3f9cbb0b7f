package work

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// Values that did not come with the claim are read before the step runs, even if the database is
// away meanwhile. They are not read again for the following steps of the same claim.
func TestWhatIsLargeIsReadBeforeTheStepRuns(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.config.RunAheadFor = time.Hour
		reads := 0
		s.db.weather.answers = func(verb, _ string) answer {
			if verb != "complete" {
				return fair
			}
			reads++
			return []answer{cut, silent, deadlock, fair}[min(reads-1, 3)]
		}
		var seen []string
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			s.note(func() { seen = append(seen, fmt.Sprint(string(c.State), c.Partial)) })
			if len(seen) < 3 {
				return next(), nil
			}
			return done(), nil
		}
		r := s.db.insert(large(`"large"`))
		s.start()
		s.ended(3 * time.Minute)
		require.Equal(t, []string{`"large"false`, `{}false`, `{}false`}, seen)
		require.Equal(t, []step.Kind{step.Next, step.Next, step.Done}, s.db.look(r.ID).outcomes)
		require.Equal(t, 4, reads)
	})
}

// If a claim is lost before its remaining values are read, nothing runs.
func TestAClaimThatIsLostIsNotRead(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		r := s.db.insert(large(`{}`))
		s.db.weather.answers = func(verb, _ string) answer {
			if verb == "complete" {
				s.db.rows[r.ID].status, s.db.rows[r.ID].failure = fsm.StatusFailed, "cancelled"
			}
			return fair
		}
		s.start()
		s.ended(time.Minute)
		s.pass(time.Second)
		require.Empty(t, s.witness.runs())
		require.Empty(t, s.db.look(r.ID).outcomes)
	})
}

// If Postgres can no longer read a state, the handler of its instance decides, and others run.
func TestAStateThatCannotBeReadReachesTheHandler(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		var failed error
		s.machine.OnError = func(_ context.Context, c *step.Claim, err error) (*step.Commit, error) {
			failed = err
			return &step.Commit{Kind: step.Fail, Err: err.Error(), Failure: string(fsm.FailureError)}, nil
		}
		s.db.weather.instead = func(verb, _ string, _ []int64) error {
			if verb == "complete" {
				return refusal("XX001")
			}
			return nil
		}
		damaged, healthy := s.db.insert(large(`{}`)), s.db.insert()
		s.start()
		s.ended(time.Minute)
		require.ErrorContains(t, failed, "XX001")
		require.Len(t, s.sent("complete"), patientMost)
		require.Equal(t, fsm.StatusFailed, s.db.look(damaged.ID).status)
		require.Equal(t, fsm.StatusDone, s.db.look(healthy.ID).status)
	})
}

// A round over Limits.ChildrenBytes is the step's error, unless the step reads it itself.
func TestALargeRoundIsTheStepsErrorOrItsOwnToRead(t *testing.T) {
	for _, onDemand := range []bool{false, true} {
		t.Run(fmt.Sprint("on demand: ", onDemand), func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				s.config.Env.Limits.ChildrenBytes, s.onDemand = 1000, onDemand
				var failed error
				s.machine.OnError = func(_ context.Context, _ *step.Claim, err error) (*step.Commit, error) {
					failed = err
					return done(), nil
				}
				read := 0
				s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
					for next := c.ReadRound(ctx); ; {
						page, err := next()
						if err != nil || len(page) == 0 {
							return done(), err
						}
						read += len(page)
					}
				}
				parent := s.db.insert(func(r *row) { r.Round, r.Visit = 3, 3 })
				for range 6 { // of 200 bytes each
					s.db.insert(child(parent.ID), func(r *row) { r.status = fsm.StatusDone })
				}
				s.start()
				s.ended(time.Minute)
				if onDemand {
					require.NoError(t, failed)
					require.Equal(t, 6, read)
					return
				}
				require.ErrorIs(t, failed, fsm.ErrTooLarge)
				require.ErrorContains(t, failed, "Limits.ChildrenBytes")
				require.Zero(t, read)
			})
		})
	}
}
