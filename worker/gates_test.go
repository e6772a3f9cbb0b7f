package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// An instance that has been given a place is claimed at once, although it is before the place in
// the order where claims resume.
func TestAPlaceIsUsedAtOnce(t *testing.T) {
	play(t, 4, func(t *testing.T, s *scene) {
		const took = 30 * time.Millisecond
		s.change(func(w *weather) {
			w.latency = func(verb string) time.Duration {
				if verb == "claim" {
					return took
				}
				return 0
			}
			s.db.walk = took
		})
		s.run = takes(time.Millisecond)
		for range 2000 {
			s.db.insert()
		}
		p := s.start()
		s.pass(2 * time.Second)
		for range 10 {
			r := s.db.insert(after(-time.Hour))
			p.lines.add([]string{"gate"})
			s.until(4*took, func() bool { return s.db.look(r.ID).status == fsm.StatusDone }, "done")
		}
	})
}

func TestAClaimIsKeptBehindItsGate(t *testing.T) {
	t.Parallel()
	var g gates
	c := &step.Claim{Queue: "q", Machine: "m", Labels: map[string]string{"customer": "acme"}}
	require.True(t, g.keeps(c, "s"), "there has been no poll yet")
	require.True(t, g.obey(nil), "the first poll")
	require.False(t, g.obey(store.Gates{}))
	require.False(t, g.any())
	require.True(t, g.obey(store.Gates{{Name: "g", Machine: "m", Step: "s", Label: "customer", Places: 1, Total: store.NoBound}}))
	require.True(t, g.any())
	require.False(t, g.keeps(c, "s"), "it has no place")
	require.True(t, g.keeps(c, "t"))
	c.Gate = "g/acme"
	require.True(t, g.keeps(c, "s"))
	require.False(t, g.keeps(c, "t"), "it would keep the place from others")
}
