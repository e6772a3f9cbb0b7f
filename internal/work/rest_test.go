package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A poll finds children to cancel, and the sweep goes on until a pass has found nothing: full pages
// again, further parents, and children that became due by the pass before.
func TestRestIsSweptUntilNothingIsLeft(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.db.rested = []store.Rested{
			{Cancelled: []int64{7, 8}, Full: true, Last: 3}, {Last: 3}, {Last: 0}, // a full page, further parents, the end
			{Cancelled: []int64{9}}, // again, since something was found
			{},                      // nothing
		}
		s.start()
		s.until(10*time.Second, func() bool { return len(s.sent("cancel rest")) == 5 }, "swept")
		var after []string
		for _, c := range s.sent("cancel rest") {
			after = append(after, c.about)
		}
		require.Equal(t, []string{"0", "0", "3", "0", "0"}, after)
		behind := s.sent("cancel rest")[0].at.Sub(s.sent("poll")[0].at)
		require.GreaterOrEqual(t, behind, restBehind, "what the poll found runnable is claimed first")
		s.pass(time.Minute)
		require.Len(t, s.sent("cancel rest"), 5, "nothing is due")
	})
}
