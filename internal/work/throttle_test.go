package work

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// turnedAway returns a step whose first run of each instance returns an error, and which is done in
// the second one. Both are runs of one attempt.
func turnedAway(s *scene, err error) (runs map[int64][]time.Time) {
	runs = map[int64][]time.Time{}
	s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
		first := false
		s.note(func() {
			runs[c.ID] = append(runs[c.ID], time.Now())
			first = len(runs[c.ID]) == 1
		})
		if c.Attempt != 0 || c.Crashes != 0 {
			return nil, fmt.Errorf("attempt %d, %d crashes", c.Attempt, c.Crashes)
		}
		if first {
			return nil, err
		}
		return done(), nil
	}
	return runs
}

var errTooMany = errors.New("too many requests")

// A hundred steps that are turned away in one moment close their gate by one statement, and each
// runs again after the time that the provider has said, as the same attempt. No handler is called:
// it would stop the instance.
func TestThrottledStepsCloseTheirGateOnce(t *testing.T) {
	play(t, 100, func(t *testing.T, s *scene) {
		s.change(func(w *weather) { w.latency = func(string) time.Duration { return 10 * time.Millisecond } })
		s.db.gates = store.Gates{{Name: "api", Machine: "m", Label: "tenant", Places: 100}}
		runs := turnedAway(s, fmt.Errorf("call: %w", fsm.Throttled(errTooMany, time.Minute)))
		for range 100 {
			s.db.insert(func(r *row) { r.Labels = map[string]string{"tenant": "acme"} })
		}
		s.start()
		s.ended(2 * time.Minute)
		require.Equal(t, []string{"api/acme 1m0s"}, s.db.throttled)
		for id, at := range runs {
			require.Len(t, at, 2)
			require.GreaterOrEqual(t, at[1].Sub(at[0]), time.Minute)
			require.Equal(t, fsm.StatusDone, s.db.look(id).status)
			require.Equal(t, []step.Kind{step.Again, step.Done}, s.db.look(id).outcomes)
		}
	})
}

// Calls that were under way together come back one after the other. Their gate slows down once in
// half a second for them, not once for each.
func TestCallsThatComeBackOneByOneSlowTheirGateDownOnce(t *testing.T) {
	play(t, 20, func(t *testing.T, s *scene) {
		s.db.gates = store.Gates{{Name: "api", Machine: "m", Places: 100}}
		runs := turnedAway(s, fsm.Throttled(errTooMany, 0))
		turned := s.run
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, time.Duration(c.ID%20)*20*time.Millisecond)
			return turned(ctx, p, c)
		}
		for range 20 {
			s.db.insert()
		}
		s.start()
		s.ended(time.Minute)
		require.Len(t, runs, 20)
		require.Equal(t, []string{"api 0s"}, s.db.throttled)
	})
}

// A step that is called after its gate was closed by this process, and is turned away, closes it
// again: it was opened meanwhile. The fake closes nothing, as if that were at once.
func TestAStepThatIsTurnedAwayLaterClosesItsGateAgain(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.db.gates = store.Gates{{Name: "api", Machine: "m", Places: 100}}
		turnedAway(s, fsm.Throttled(errTooMany, time.Minute))
		s.db.insert()
		s.db.insert(func(r *row) { r.eligible = time.Now().Add(time.Second) })
		s.db.insert(func(r *row) { r.eligible = time.Now().Add(2 * time.Second) })
		s.start()
		s.ended(2 * time.Minute)
		require.Equal(t, []string{"api 1m0s", "api 1m0s", "api 1m0s"}, s.db.throttled)
	})
}

// However the statement that closes the gate ends, the step runs again, and so it does without a
// gate, or without a time.
func TestAThrottledStepRunsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		gates   store.Gates
		err     error
		refuses bool
		closed  []string
		pause   time.Duration
	}{
		"no gate":   {nil, fsm.Throttled(errTooMany, time.Hour), false, nil, time.Hour},
		"no time":   {store.Gates{{Name: "api", Places: 1}}, fsm.Throttled(errTooMany, 0), false, []string{"api 0s"}, throttlePause * 8 / 10},
		"refused":   {store.Gates{{Name: "api", Places: 1}}, fsm.Throttled(errTooMany, time.Minute), true, nil, time.Minute},
		"the outer": {nil, fsm.Throttled(fsm.RetryAfter(time.Hour, fsm.Throttled(errTooMany, time.Hour)), time.Minute), false, nil, time.Minute},
		"too long":  {store.Gates{{Name: "api", Places: 1}}, fsm.Throttled(errTooMany, 24*time.Hour), false, []string{"api 1h0m0s"}, fsm.MaxThrottle},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				s.db.gates = c.gates
				s.change(func(w *weather) {
					w.instead = func(verb, _ string, _ []int64) error {
						if c.refuses && verb == "throttle" {
							return refusal("55P03")
						}
						return nil
					}
				})
				runs := turnedAway(s, c.err)
				id := s.db.insert().ID
				s.start()
				s.ended(2 * fsm.MaxThrottle)
				require.Equal(t, c.closed, s.db.throttled)
				require.Len(t, runs[id], 2)
				require.GreaterOrEqual(t, runs[id][1].Sub(runs[id][0]), c.pause)
			})
		})
	}
}

// An error that is permanent is one, whatever else it is.
func TestAPermanentErrorIsNotThrottled(t *testing.T) {
	for name, err := range map[string]error{
		"outside": fsm.Permanent(fsm.Throttled(errTooMany, time.Minute)),
		"inside":  fsm.Throttled(fsm.Permanent(errTooMany), time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				turnedAway(s, err)
				id := s.db.insert().ID
				s.start()
				s.ended(time.Minute)
				require.Equal(t, fsm.StatusFailed, s.db.look(id).status)
			})
		})
	}
}
