package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A process goes through all lines when gates come to concern others, again once no process inserts
// by the gates of before, and a last time; it tries again after a failure. Without such news, it
// sends nothing.
func TestLinesAreFiledAnew(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		refused := false
		s.change(func(w *weather) {
			w.instead = func(verb, _ string, _ []int64) error {
				if verb == "refile" && !refused {
					refused = true
					return refusal("55P03")
				}
				return nil
			}
		})
		set := func(gates ...store.Gate) time.Time {
			s.db.mu.Lock()
			defer s.db.mu.Unlock()
			s.db.gates, s.db.refiled = gates, 0
			return time.Now()
		}
		began := time.Now()
		s.start()
		s.pass(10 * time.Minute)
		require.Empty(t, s.sent("refile", began), "there are no gates")

		began = set(store.Gate{Name: "g", Places: 1})
		s.pass(10 * time.Second)
		require.Len(t, s.sent("refile", began), 3, "one was refused, and the first page is full")
		s.pass(10 * time.Second)
		require.Len(t, s.sent("refile", began), 4, "late inserters")
		s.pass(10 * time.Minute)
		require.Len(t, s.sent("refile", began), 5)

		began = set(store.Gate{Name: "g", Places: 2})
		s.pass(10 * time.Minute)
		require.Empty(t, s.sent("refile", began), "it concerns whom it has concerned")

		set(store.Gate{Name: "g", Machine: "m", Places: 2})
		s.pass(5 * time.Second)
		began = set(store.Gate{Name: "g", Machine: "n", Places: 2})
		s.pass(10 * time.Minute)
		require.Len(t, s.sent("refile", began), 4, "from the start, after news")
	})
}
