package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The claim's text and what gates change of it belong together.
func TestGatedClaim(t *testing.T) {
	for i := 0; i < len(gatedChanges); i += 2 {
		require.Equal(t, 1, strings.Count(claimSQL, gatedChanges[i]), gatedChanges[i])
	}
	for i := 0; i < len(gatedChanges); i += 2 {
		for name, variant := range map[string]string{"others": claimOthersSQL, "some": claimSomeSQL} {
			if !strings.Contains(gatedChanges[i], "NULL, 3, 1, priority") { // they leave that act out
				require.Equal(t, 1, strings.Count(variant, gatedChanges[i]), "%s: %s", name, gatedChanges[i])
			}
		}
	}
	require.NotEqual(t, claimSettingsSQL, gatedSettingsSQL)
}
