package work

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

// waitingSteps makes steps that wait for the end of their context, and records its causes. Then
// they return an error, or out.
func waitingSteps(s *scene, out *step.Commit) *[]error {
	var causes []error
	s.run = func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
		<-ctx.Done()
		s.note(func() { causes = append(causes, context.Cause(ctx)) })
		if out != nil {
			return out, nil
		}
		return nil, ctx.Err()
	}
	s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
		s.t.Error("the handler was called")
		return next(), nil
	}
	return &causes
}

// byOperator cancels the row in another process.
func byOperator(r *row) {
	r.status, r.worker, r.failure = fsm.StatusFailed, "", string(fsm.FailureCancelled)
}

func TestAStepWhoseInstanceIsCancelledElsewhereIsToldByTheNextBeat(t *testing.T) {
	for name, out := range map[string]*step.Commit{"obeys": nil, "returns an outcome": next()} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				causes := waitingSteps(s, out)
				r := s.db.insert()
				s.start()
				s.pass(5 * time.Second)
				s.db.change(r.ID, byOperator)
				s.pass(21 * time.Second)
				require.Equal(t, []error{fsm.ErrCancelled}, *causes)
				require.Equal(t, fsm.StatusFailed, s.db.look(r.ID).status)
				require.Empty(t, s.db.look(r.ID).outcomes)
			})
		})
	}
}

func TestAStepWhoseInstanceIsCancelledHereIsToldAtOnce(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		causes := waitingSteps(s, nil)
		r := s.db.insert()
		p := s.start()
		s.pass(5 * time.Second)
		s.db.change(r.ID, byOperator)
		p.Cancelled([]int64{r.ID, r.ID + 1000})
		s.pass(time.Millisecond)
		require.Equal(t, []error{fsm.ErrCancelled}, *causes)
	})
}

// Unbounded run-ahead ends with the beat that finds the instance paused, or at once in the
// operator's process.
func TestAPausedInstanceDoesNotRunAhead(t *testing.T) {
	for name, pause := range map[string]func(p *player, r *row){
		"elsewhere": func(p *player, r *row) { p.s.db.change(r.ID, func(r *row) { r.paused = true }) },
		"here":      func(p *player, r *row) { p.Paused([]int64{r.ID}) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				var over atomic.Bool
				s.config.RunAheadFor, s.config.RunAheadSteps = time.Hour, 1_000_000
				s.run = func(ctx context.Context, _ *player, _ *step.Claim) (*step.Commit, error) {
					if pace.Sleep(ctx, time.Second); over.Load() {
						return done(), nil
					}
					return next(), nil
				}
				r := s.db.insert()
				p := s.start()
				s.pass(10 * time.Second)
				token := s.db.look(r.ID).Token
				s.pass(time.Minute)
				require.Equal(t, token, s.db.look(r.ID).Token, "kept")
				pause(p, r)
				s.pass(22 * time.Second)
				require.NotEqual(t, token, s.db.look(r.ID).Token, "given back, and claimed anew by a database that knows no pause")
				over.Store(true)
			})
		})
	}
}
