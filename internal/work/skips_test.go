package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

// A poll finds nodes to be skipped, and the sweep goes on until a pass has found nothing: behind a
// full slice, and again for the next level. What it has skipped has ended, and what it has woken is
// claimed.
func TestSkipsAreSweptUntilNothingIsLeft(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.db.skipped = []store.Skipped{
			{Failed: []int64{7, 8}, Last: 8}, {Failed: []int64{9}}, // a full slice, the end
			{Failed: []int64{10}}, // the next level
			{},                    // nothing
		}
		s.start()
		s.until(10*time.Second, func() bool { return len(s.sent("skip")) == 4 }, "swept")
		var after []string
		for _, c := range s.sent("skip") {
			after = append(after, c.about)
		}
		require.Equal(t, []string{"0", "8", "0", "0"}, after)
		s.pass(time.Minute)
		require.Len(t, s.sent("skip"), 4, "nothing is due")
	})
}

// The process that has left nodes to be skipped looks again while its sweep has passed some by. A
// poll that finds them sweeps once.
func TestSkipsThatArePassedBy(t *testing.T) {
	play(t, 1, func(t *testing.T, s *scene) {
		s.db.passedBy = 1000
		p := s.start()
		sweeps := func(due func(rest, skips bool)) int {
			s.pass(5 * time.Second)
			before := len(s.sent("skip"))
			due(false, true)
			s.pass(5 * time.Second)
			return len(s.sent("skip")) - before
		}
		require.Equal(t, 1, sweeps(p.wakeSweeps))
		require.Equal(t, skipTries+1, sweeps(p.sweepsAreDue))
		s.db.passedBy = 2
		require.Equal(t, 3, sweeps(p.sweepsAreDue), "until nothing is left")
	})
}
