package work

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// refuses makes Postgres refuse the outcomes of some instances until their handlers were called
// with that error. said holds the errors that the handlers got, by id.
func refuses(s *scene, code string, ids ...int64) (said *sync.Map) {
	said = &sync.Map{}
	s.machine.OnError = func(_ context.Context, c *step.Claim, err error) (*step.Commit, error) {
		_, again := said.Swap(c.ID, err.Error())
		if again {
			return nil, errors.New("called twice")
		}
		return nil, err
	}
	s.db.weather.instead = func(verb, _ string, sent []int64) error {
		for _, id := range ids {
			if _, told := said.Load(id); verb == "commit" && !told && slices.Contains(sent, id) {
				return refusal(code)
			}
		}
		return nil
	}
	return said
}

// Whatever error a trigger or a policy of the host raises for one outcome, or if its row is
// damaged, the others are committed at once, and that one goes to its handler.
func TestARefusalHitsItsOwnEntryOnly(t *testing.T) {
	for _, code := range []string{"P0001", "38000", "0A000", "44000", "27000", "MY001", "XX001"} {
		t.Run(code, func(t *testing.T) {
			play(t, 0, func(t *testing.T, s *scene) {
				together(s, 100)
				said := refuses(s, code, 17, 42)
				s.start()
				s.until(5*time.Second, func() bool { return len(s.left()) == 0 }, "all")
				for _, r := range s.db.all() {
					if r.ID == 17 || r.ID == 42 {
						require.Equal(t, string(fsm.FailureError), r.failure)
						text, _ := said.Load(r.ID)
						require.Contains(t, text, code)
						continue
					}
					require.Equal(t, fsm.StatusDone, r.status)
				}
			})
		})
	}
}

// An error that looks like a wrong installation may concern one row, whose trigger calls a missing
// function. The others are committed. Once the same statements have committed more of them, that
// row's outcome is refused.
func TestAConfigurationErrorOfOneRow(t *testing.T) {
	for _, code := range []string{"42883", "42501", "3F000"} {
		t.Run(code, func(t *testing.T) {
			play(t, 0, func(t *testing.T, s *scene) {
				together(s, 100)
				said := refuses(s, code, 42)
				s.start()
				s.until(5*time.Second, func() bool { return len(s.left()) == 1 }, "the others")
				s.pass(10 * time.Minute)
				_, told := said.Load(int64(42))
				require.False(t, told, "nothing was committed since that would tell it from a wrong installation")
				for range 20 {
					s.db.insert()
					s.running[0].Nudge("q")
					s.pass(6 * time.Second)
				}
				require.Empty(t, s.left())
				_, told = said.Load(int64(42))
				require.True(t, told)
				require.Equal(t, string(fsm.FailureError), s.db.look(42).failure)
			})
		})
	}
}

// If all outcomes fail alike, the installation is wrong. No instance fails, and all go on once it
// is repaired.
func TestAConfigurationErrorOfAll(t *testing.T) {
	play(t, 0, func(t *testing.T, s *scene) {
		together(s, 50)
		s.machine.OnError = func(context.Context, *step.Claim, error) (*step.Commit, error) {
			t.Error("a handler was called")
			return nil, errors.New("called")
		}
		s.db.weather.instead = func(verb, _ string, _ []int64) error {
			if verb == "commit" {
				return refusal("42501")
			}
			return nil
		}
		s.start()
		s.pass(5 * time.Minute)
		require.Len(t, s.left(), 50)
		s.change(func(w *weather) { w.instead = nil })
		s.ended(time.Minute)
		for _, r := range s.db.all() {
			require.Equal(t, fsm.StatusDone, r.status)
		}
	})
}
