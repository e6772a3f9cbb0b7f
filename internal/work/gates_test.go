package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

func TestAClaimIsKeptBehindItsGate(t *testing.T) {
	t.Parallel()
	var g gates
	c := &step.Claim{Queue: "q", Machine: "m", Labels: map[string]string{"customer": "acme"}}
	require.True(t, g.keeps(c, "s"), "there has been no poll yet")
	require.True(t, g.obey(0, nil, map[string]bool{}), "the first poll")
	require.False(t, g.obey(0, store.Gates{}, nil))
	some, own := g.concern("q")
	require.False(t, some || own)
	require.True(t, g.obey(0, store.Gates{{Name: "g", Machine: "m", Step: "s", Label: "customer", Places: 1, Total: store.NoBound}}, nil))
	some, own = g.concern("q")
	require.True(t, some && !own)
	require.False(t, g.keeps(c, "s"), "it has no place")
	require.True(t, g.keeps(c, "t"))
	c.Gate = "g/acme"
	require.True(t, g.keeps(c, "s"))
	require.False(t, g.keeps(c, "t"), "it would keep the place from others")
	g.obey(0, store.Gates{{Name: "g", Machine: "m", Label: "customer", Rate: store.Rate{N: 1, Per: 1, Burst: 1}}}, nil)
	require.False(t, g.keeps(c, "s"), "each step counts")
	g.obey(0, store.Gates{{Name: "of-queue", Queue: "q", Rate: store.Rate{N: 1, Per: 1, Burst: 1}}}, nil)
	c.Gate = ""
	require.False(t, g.keeps(c, "s"), "each step counts")
	some, own = g.concern("q")
	require.True(t, some && own)
	some, _ = g.concern("other")
	require.False(t, some)
	require.True(t, g.look(0))
	g.obey(0, nil, map[string]bool{"": true, "other": true})
	some, _ = g.concern("other")
	require.True(t, some, "somebody is in line")
	some, _ = g.concern("q")
	require.False(t, some, "nobody is in line there")
	require.True(t, g.look(time.Second), "until nobody is in line")
	g.obey(time.Second, nil, map[string]bool{})
	require.False(t, g.look(2*time.Second))
	require.True(t, g.look(time.Minute), "an insert may have gone by gates of a while ago")
	g.obey(time.Minute, store.Gates{{Name: "elsewhere", Queue: "q", Places: 1, Total: store.NoBound}}, map[string]bool{"": true, "other": true})
	some, _ = g.concern("other")
	require.True(t, some, "somebody is in line at a gate that is gone")
}
