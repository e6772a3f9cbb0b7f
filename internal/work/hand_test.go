package work

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// byHand makes one more process, which a Hand operates.
func (s *scene) byHand() (*player, *Hand) {
	p := s.player()
	return p, p.ByHand()
}

// take takes an instance that must be there.
func (s *scene) take(h *Hand) *Taken {
	s.t.Helper()
	taken, err := h.Take(s.t.Context(), "q", 1)
	require.NoError(s.t, err)
	require.NotNil(s.t, taken)
	return taken
}

// within returns a context that ends after d.
func (s *scene) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	s.t.Cleanup(cancel)
	return ctx
}

func TestAHandDoesNothingByItself(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.db.insert()
		s.byHand()
		s.pass(time.Hour)
		for _, verb := range []string{"claim", "poll", "time out", "reap", "prune", "beat", "sweep"} {
			require.Empty(t, s.sent(verb), verb)
		}
	})
}

func TestAHandTakesTheMostUrgentAndRunsOneStep(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.config.RunAheadSteps, s.config.RunAheadFor = 100, time.Hour
		s.run = func(_ context.Context, _ *player, c *step.Claim) (*step.Commit, error) {
			if c.Visit == 2 {
				return done(), nil
			}
			return next(), nil
		}
		later, urgent := s.db.insert(priority(3)), s.db.insert(priority(-3))
		s.db.insert(in("another"))
		_, h := s.byHand()
		require.Equal(t, []string{store.MachineID("m", 1)}, h.Machines())
		for visit := range 3 {
			taken := s.take(h)
			info := taken.Info()
			require.Equal(t, []int64{urgent.ID, int64(visit)}, []int64{int64(info.ID), info.Visit})
			require.Equal(t, fsm.StatusExecuting, s.db.look(urgent.ID).status)
			require.NoError(t, taken.Run(t.Context()))
			require.Len(t, s.db.look(urgent.ID).outcomes, visit+1, "it is durable when Run returns")
			require.NotEqual(t, fsm.StatusExecuting, s.db.look(urgent.ID).status, "no claim is kept")
		}
		require.Equal(t, fsm.StatusDone, s.db.look(urgent.ID).status)
		require.EqualValues(t, later.ID, s.take(h).Info().ID)
		none, err := h.Take(t.Context(), "q", 1)
		require.NoError(t, err)
		require.Nil(t, none)
	})
}

func TestWhatAHandGivesBackIsAsItWas(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"))
		before := s.db.look(r.ID)
		_, h := s.byHand()
		for range 2 { // the key, too
			s.take(h).GiveBack()
			after := s.db.look(r.ID)
			require.Equal(t, fsm.StatusRunnable, after.status)
			require.Equal(t, []any{before.Visit, before.Attempt, before.Crashes, before.eligible},
				[]any{after.Visit, after.Attempt, after.Crashes, after.eligible})
			require.Empty(t, after.outcomes)
		}
		require.NoError(t, s.take(h).Run(t.Context()))
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
	})
}

// Claims that are cut off go on until they have visited all keys, and no further.
func TestAHandGoesOnceAround(t *testing.T) {
	turn := func(afters ...string) store.Turn {
		gates := map[string]store.GateTurn{}
		for n, after := range afters {
			gates[[]string{"a/", "b/"}[n]] = store.GateTurn{After: after}
		}
		return store.Turn{Gates: gates}
	}
	for name, turns := range map[string][]store.Turn{ // with the last one they have been around
		"from the first key":          {turn(), turn("a/3"), turn("a/6"), turn("a/1")},
		"from a key between":          {turn("a/4"), turn("a/7"), turn("a/2"), turn("a/5")},
		"from a key, which it meets":  {turn("a/4"), turn("a/7"), turn("a/4")},
		"beside a line that is short": {turn("a/4", "b/1"), turn("a/7", "b/1"), turn("a/2", "b/1"), turn("a/5", "b/1")},
		"of two lines":                {turn(), turn("a/3", "b/5"), turn("a/1", "b/9"), turn("a/4", "b/2")},
		"a short line only":           {turn("a/4"), turn("a/4")},
	} {
		around := lap{starts: map[string]string{}, wrapped: map[string]bool{}}
		for n := range len(turns) - 1 {
			require.Equal(t, n == len(turns)-2, around.over(turns[n], turns[n+1]), "%s, claim %d", name, n)
		}
	}
}

func TestAHandWaitsForAKey(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		r := s.db.insert(keyed("k"))
		other := s.haunted("k")
		_, h := s.byHand()
		taken, err := h.Take(s.within(10*time.Second), "q", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `partition key "k"`)
		require.Nil(t, taken)
		require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status, "it went back")

		freed := time.AfterFunc(5*time.Second, func() { other.cut() })
		defer freed.Stop()
		began := time.Now()
		require.NoError(t, s.take(h).Run(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), 5*time.Second)
		require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
	})
}

func TestTheEndOfAHandsContextEndsTheStep(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.run = takes(time.Hour)
		r := s.db.insert()
		_, h := s.byHand()
		require.ErrorIs(t, s.take(h).Run(s.within(time.Minute)), context.DeadlineExceeded)
		after := s.db.look(r.ID)
		require.Equal(t, fsm.StatusRunnable, after.status)
		require.Zero(t, after.Attempt)
		require.Empty(t, after.outcomes)
	})
}

// The end of a step that ignored its context comes when no caller waits for it any more. It is not
// taken for the end of another step.
func TestAStepThatIsDeafDoesNotEndForAnother(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		first, second := s.db.insert(priority(-1)), s.db.insert()
		s.run = func(ctx context.Context, p *player, c *step.Claim) (*step.Commit, error) {
			if c.ID == first.ID {
				return deaf(10*time.Minute)(ctx, p, c)
			}
			return takes(time.Minute)(ctx, p, c)
		}
		_, h := s.byHand()
		err := s.take(h).Run(s.within(time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `step "s" of instance 1 still runs`)
		require.NoError(t, s.take(h).Run(t.Context()))
		require.Equal(t, fsm.StatusDone, s.db.look(second.ID).status)
		s.pass(10 * time.Minute)
		require.Equal(t, fsm.StatusDone, s.db.look(first.ID).status, "its outcome counts, since nobody else has its claim")
		third := s.db.insert()
		require.NoError(t, s.take(h).Run(t.Context()))
		require.Equal(t, fsm.StatusDone, s.db.look(third.ID).status, "Run returned before its step had ended")
	})
}

func TestAHandWakesWhatIsDue(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		parked := func(d time.Duration) func(*row) {
			return func(r *row) { r.status, r.deadline = fsm.StatusAwaitingSignal, time.Now().Add(d) }
		}
		over, waits := s.db.insert(parked(-time.Second)), s.db.insert(parked(time.Hour))
		late := s.db.insert(func(r *row) { r.Deadline = time.Now().Add(-time.Second) })
		s.db.paused = []store.PausedQueue{{Queue: "q"}}
		_, h := s.byHand()
		paused, err := h.Wake(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"q"}, paused)
		require.Equal(t, fsm.StatusRunnable, s.db.look(over.ID).status)
		require.True(t, s.db.look(over.ID).TimedOut)
		require.Equal(t, fsm.StatusAwaitingSignal, s.db.look(waits.ID).status)
		require.Equal(t, string(fsm.FailureDeadline), s.db.look(late.ID).failure)
		require.EqualValues(t, over.ID, s.take(h).Info().ID, "whether it is paused is for the caller to heed")
	})
}

func TestAHandMeetsOthersOnAKey(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		collisions := 3
		s.db.weather.instead = func(verb, _ string, _ []int64) error {
			if verb == "claim" && collisions > 0 {
				collisions--
				return refusal("23505")
			}
			return nil
		}
		r := s.db.insert()
		_, h := s.byHand()
		require.EqualValues(t, r.ID, s.take(h).Info().ID)
		require.Zero(t, collisions)
	})
}

// A claim whose answer is lost may have taken effect. The rows that it took are given back.
func TestAHandLeavesNoStrays(t *testing.T) {
	for name, what := range map[string]answer{"done": lostDone, "not done": lostNever, "not sent": cut} {
		t.Run(name, func(t *testing.T) {
			play(t, 4, func(t *testing.T, s *scene) {
				lost := false
				s.db.weather.answers = func(verb, _ string) answer {
					if verb == "claim" && !lost {
						lost = true
						return what
					}
					return fair
				}
				r := s.db.insert()
				_, h := s.byHand()
				_, err := h.Take(t.Context(), "q", 1)
				require.Error(t, err)
				require.True(t, errors.Is(err, errLost) || store.Unknown(err), "%v", err)
				require.Equal(t, fsm.StatusRunnable, s.db.look(r.ID).status)
				require.NoError(t, s.take(h).Run(t.Context()))
				require.Equal(t, fsm.StatusDone, s.db.look(r.ID).status)
			})
		})
	}
}

func TestAHandsWorkerStopsInOrder(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		s.db.insert(keyed("k"))
		p, h := s.byHand()
		require.NoError(t, s.take(h).Run(t.Context()))
		took, err := p.stop()
		require.NoError(t, err)
		require.Less(t, took, time.Second)
		require.Empty(t, s.db.connected(), "its session has ended")
	})
}
