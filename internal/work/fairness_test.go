package work

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

func TestASlowQueueStarvesNoOther(t *testing.T) {
	play(t, 2, func(t *testing.T, s *scene) {
		s.config.Queues["slow"] = usual(3)
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			if c.Queue == "slow" {
				return takes(time.Hour)(ctx, p, c)
			}
			return takes(10*time.Millisecond)(ctx, p, c)
		}
		for range 1000 {
			s.db.insert(in("slow"), priority(-5))
		}
		s.start()
		s.pass(time.Second)
		for range 100 {
			s.db.insert()
		}
		s.running[0].Nudge("q")
		s.pass(time.Second)
		require.Len(t, s.left(), 1000)
	})
}

// endless makes every step return a Next after step1, so that instances run ahead without end.
func endless(s *scene, step1 time.Duration) {
	s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
		pace.Sleep(ctx, step1)
		return next(), nil
	}
}

// ahead returns the number of steps that each claim of an instance took.
func ahead(s *scene, id int64) (steps []int) {
	last := int64(0)
	for _, v := range s.witness.runs(id) {
		if v.claim.Token != last {
			steps, last = append(steps, 0), v.claim.Token
		}
		steps[len(steps)-1]++
	}
	return steps[:len(steps)-1] // without the last claim, which still runs
}

func TestRunAheadEndsAfterSoManySteps(t *testing.T) {
	for _, most := range []int{1, 2, 100} {
		t.Run("", func(t *testing.T) {
			play(t, 1, func(t *testing.T, s *scene) {
				s.config.RunAheadSteps = most
				endless(s, time.Millisecond)
				r := s.db.insert()
				s.start()
				s.pass(time.Second)
				for _, n := range ahead(s, r.ID) {
					require.Equal(t, most, n)
				}
				require.NotEmpty(t, ahead(s, r.ID))
			})
		})
	}
}

func TestRunAheadEndsAfterASecond(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		endless(s, 100*time.Millisecond)
		r := s.db.insert()
		s.start()
		s.pass(10 * time.Second)
		require.GreaterOrEqual(t, len(ahead(s, r.ID)), 8)
		for _, n := range ahead(s, r.ID) {
			require.InDelta(t, 10, n, 1)
		}
	})
}

// Two instances that run ahead share one slot fairly.
func TestWhoRunsAheadTakesTurns(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		endless(s, time.Millisecond)
		a, b := s.db.insert(), s.db.insert()
		s.start()
		s.pass(5 * time.Second)
		one, two := len(s.witness.runs(a.ID)), len(s.witness.runs(b.ID))
		require.InDelta(t, 1, float64(one)/float64(two), 0.1)
	})
}

func TestRunAheadYieldsToMoreUrgentWork(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		buffered(s, 1, 4)
		s.config.RunAheadFor, s.config.RunAheadSteps = time.Hour, 1<<30
		s.run = func(ctx context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			pace.Sleep(ctx, 10*time.Millisecond)
			if c.Priority == 0 {
				return next(), nil
			}
			return done(), nil
		}
		busy := s.db.insert()
		p := s.start()
		s.pass(time.Second)
		require.Empty(t, ahead(s, busy.ID), "it runs ahead while nothing else waits")
		later := s.db.insert(priority(1))
		p.Nudge("q")
		s.pass(time.Second)
		require.Empty(t, s.witness.runs(later.ID), "what is less urgent waits")
		urgent, at := s.db.insert(priority(-1)), time.Now()
		p.Nudge("q")
		s.until(time.Second, func() bool { return s.db.look(urgent.ID).terminal() }, "the urgent one runs")
		require.LessOrEqual(t, time.Since(at), 30*time.Millisecond, "after one step")
		require.Len(t, ahead(s, busy.ID), 1)
	})
}

// Only a plain Next may keep its claim.
func TestDelayedAndRepeatedStepsReleaseTheirClaim(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		outcomes := []*step.Commit{
			{Kind: step.Next, Step: "s", State: []byte("{}"), Delay: time.Second},
			{Kind: step.Retry},
			{Kind: step.Await, Step: "s", Names: []string{"x"}, Timeout: time.Second},
			{Kind: step.Next, Step: "s", State: []byte("{}"), At: time.Now().Add(-time.Hour)},
			done(),
		}
		s.run = func(context.Context, *player, *step.Claim) (*step.Commit, error) {
			o := outcomes[0]
			outcomes = outcomes[1:]
			return o, nil
		}
		r := s.db.insert()
		s.start()
		s.ended(time.Minute)
		tokens := map[int64]bool{}
		for _, v := range s.witness.runs(r.ID) {
			tokens[v.claim.Token] = true
		}
		require.Len(t, tokens, 5)
	})
}

// A claim is not kept for another step when its lease is about to become doubtful.
func TestRunAheadEndsNearTheLocalDeadline(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.config.RunAheadFor, s.config.RunAheadSteps, s.config.NoReaper = time.Hour, 1<<30, true
		endless(s, 100*time.Millisecond)
		s.db.weather.answers = func(verb, _ string) answer {
			if verb == "beat" {
				return cut
			}
			return fair
		}
		r := s.db.insert()
		s.start()
		s.pass(5 * time.Minute)
		runs := s.witness.runs(r.ID)
		began := runs[0].from
		for i, v := range runs[1:] {
			if v.claim.Token != runs[i].claim.Token {
				began = v.from
			}
			require.Less(t, v.from.Sub(began), 45*time.Second)
		}
		require.Zero(t, s.db.look(r.ID).Attempt)
	})
}
