package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The variants of the claim are made from its text. A part that they replace must not change its
// words alone.
func TestTheVariantsOfTheClaim(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{claimOthersSQL, claimSomeSQL} {
		require.Equal(t, 2, strings.Count(sql, "$11::bigint[]"), "in front and back")
		require.NotContains(t, sql, "FROM held WHERE pick_lane = 1")
		require.NotContains(t, sql, "pick_lane <> 1")
		require.Contains(t, sql, "|| ARRAY(SELECT p.k FROM probe p")
	}
	require.Equal(t, 2, strings.Count(claimSomeSQL, "coalesce(g.status = 'runnable', false)"))
	require.NotContains(t, windowSQL, "SKIP LOCKED")
	require.Equal(t, 2, strings.Count(windowSQL, "$7::bigint[]"))
	require.NotContains(t, windowSQL, "$8")
}
