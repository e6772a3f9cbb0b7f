package integration

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

var paceMachine = fsm.Declare[counter, int]("pace")

// pace is a machine whose steps end when the test lets them, and report the token of their claim.
type pace struct {
	tokens chan int64 // one from each step that has begun
	leave  chan struct{}
	total  atomic.Int64
}

func (p *pace) definition() fsm.Definition {
	return paceMachine.Define(fsm.Step("start", func(ctx context.Context, v *fsm.Visit[counter, int]) (fsm.Outcome, error) {
		p.total.Add(1)
		p.tokens <- v.FencingToken
		select {
		case <-p.leave:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if v.State.N == 5 {
			return v.Done(v.State.N), nil
		}
		return v.Next("start", counter{v.State.N + 1}), nil
	}))
}

// A running step goes on, and its outcome counts. The claim under which it could run ahead is not
// kept for another step.
func TestAPausedInstanceStopsAfterTheStepThatIsUnderWay(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		t.Run(map[bool]string{false: "by its own process", true: "by another"}[elsewhere], func(t *testing.T) {
			t.Parallel()
			url := pgtest.Migrated(t)
			pool := pgtest.Pool(t, url)
			p := &pace{tokens: make(chan int64, 10), leave: make(chan struct{})}
			c := hasty(configOn(t, url, p.definition(), plainJob()))
			c.RunAheadFor, c.RunAheadSteps = time.Hour, math.MaxInt32
			eng := start(t, c)
			operator := eng
			if elsewhere {
				operator = client(t, pool)
			}
			id := insert(t, eng, paceMachine.New(counter{}))
			claim := <-p.tokens
			for range 2 {
				p.leave <- struct{}{}
				require.Equal(t, claim, <-p.tokens, "it does not run ahead")
			}
			_, err := operator.Admin().Pause(t.Context(), id)
			require.NoError(t, err)
			if elsewhere { // its process learns of it by a heartbeat, at the latest by the one before the second from here
				for range 2 {
					lease := query[time.Time](t, pool, `SELECT lease_expires_at FROM gendurable.gen_durable WHERE id = $1`, id)
					eventually(t, func() bool {
						return query[bool](t, pool, `SELECT lease_expires_at > $2 FROM gendurable.gen_durable WHERE id = $1`, id, lease)
					})
				}
			}
			require.Equal(t, fsm.StatusExecuting, get(t, eng, id).Status, "the step goes on")
			p.leave <- struct{}{}
			eventuallyStatus(t, eng, id, fsm.StatusRunnable)
			i := get(t, eng, id)
			require.True(t, i.Paused)
			require.EqualValues(t, 3, i.Visit, "its outcome counts")
			require.JSONEq(t, `{"N":3}`, string(i.State))

			// Instances behind it are claimed and done meanwhile.
			allDone(t, eng, insert(t, eng, plainMachine.New(plain{}).Priority(9)))
			require.EqualValues(t, 3, p.total.Load(), "a paused instance was run")
			causes, err := eng.Admin().Why(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, engine.CausePaused, causes[0].Kind)

			_, err = operator.Admin().Resume(t.Context(), id)
			require.NoError(t, err)
			require.Greater(t, <-p.tokens, claim, "another claim")
			close(p.leave)
			require.Equal(t, 5, result(t, eng, paceMachine, id))
			require.EqualValues(t, 6, p.total.Load())
		})
	}
}
