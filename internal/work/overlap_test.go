package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
)

// slowRows makes the rows of claims take two seconds after their COMMIT. lost says which of them
// are lost on the way, counted from 1.
func slowRows(s *scene, lost ...int) {
	s.db.weather.latency = func(verb string) time.Duration {
		if verb == claimedRows {
			return 4 * time.Second
		}
		return 0
	}
	n := 0
	s.db.weather.answers = func(verb, _ string) answer {
		if verb == claimedRows {
			n++
			for _, one := range lost {
				if one == n {
					return lostDone
				}
			}
		}
		return fair
	}
}

const overlapRows = 3 * claimMost / 2

// The next claim is sent while the rows of one are being read, and goes on behind them. No third
// one is sent meanwhile.
func TestTheNextClaimIsSentWhileRowsAreRead(t *testing.T) {
	play(t, 2*claimMost, func(t *testing.T, s *scene) {
		for range overlapRows {
			s.db.insert()
		}
		slowRows(s)
		s.db.walk = time.Second // the next one from the front comes much later
		s.run = takes(time.Second)
		s.start()
		s.pass(time.Second)
		require.Len(t, s.sent("claim"), 2)
		require.Equal(t, 1, s.db.fronts, "the second goes on behind the first")
		require.Empty(t, s.witness.runs())
		s.ended(time.Minute)
		require.Equal(t, overlapRows, len(s.witness.runs()))
	})
}

// A claim whose rows are lost is given back once no other claim is under way: a row that the other
// one has claimed is no stray.
func TestLostRowsOfAClaimGoBackAfterTheNext(t *testing.T) {
	for name, lost := range map[string][]int{"first": {1}, "second": {2}, "both": {1, 2}} {
		t.Run(name, func(t *testing.T) {
			play(t, 2*claimMost, func(t *testing.T, s *scene) {
				for range overlapRows {
					s.db.insert()
				}
				slowRows(s, lost...)
				s.run = takes(time.Second)
				s.start()
				s.ended(30 * time.Second)
				require.Equal(t, overlapRows, len(s.witness.runs()), "each has run once")
				require.Len(t, s.sent("held"), 1)
			})
		})
	}
}

// Stop gives back what two claims bring that are under way, and what of them is lost.
func TestStopGivesBackWhatTwoClaimsBring(t *testing.T) {
	for name, lost := range map[string][]int{"nothing lost": nil, "first lost": {1}, "second lost": {2}} {
		t.Run(name, func(t *testing.T) {
			play(t, 2*claimMost, func(t *testing.T, s *scene) {
				for range overlapRows {
					s.db.insert()
				}
				slowRows(s, lost...)
				p := s.start()
				s.pass(time.Second)
				require.Len(t, s.sent("claim"), 2)
				p.stopped()
				require.Empty(t, s.witness.runs())
				require.Len(t, s.left(), overlapRows)
				for _, id := range s.left() {
					require.Equal(t, fsm.StatusRunnable, s.db.look(id).status)
				}
			})
		})
	}
}
