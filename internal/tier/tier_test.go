package tier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

func TestTheTierDecidesSizes(t *testing.T) {
	t.Setenv("GENDURABLE_PROOF", "")
	require.Equal(t, testing.Short(), tier.Current() == tier.Short)
	require.Equal(t, !testing.Short(), tier.Current() == tier.CI)
	require.Equal(t, "short", tier.Pick("short", "long"))
	require.Equal(t, tier.Current(), tier.Tier(tier.Size(t, "NO_SUCH_VARIABLE", 0, 1, 2)))

	t.Setenv("GENDURABLE_PROOF", "1")
	require.Equal(t, tier.Proof, tier.Current())
	require.Equal(t, "long", tier.Pick("short", "long"))
	require.Equal(t, 3, tier.Size(t, "NO_SUCH_VARIABLE", 1, 2, 3))
	t.Setenv("SOME_SIZE", "7")
	require.Equal(t, 7, tier.Size(t, "SOME_SIZE", 1, 2, 3))
}

func TestAPartOfAProof(t *testing.T) {
	for text, want := range map[string][2]int{"": {0, 1}, "1/4": {0, 4}, "4/4": {3, 4}} {
		t.Setenv("SOME_PART", text)
		part, parts := tier.Part(t, "SOME_PART")
		require.Equal(t, want, [2]int{part, parts}, text)
	}
}

func TestATestIsLeftToItsTier(t *testing.T) {
	t.Setenv("GENDURABLE_PROOF", "")
	ran := false
	t.Run("left out", func(t *testing.T) {
		tier.Needs(t, tier.Proof)
		ran = true
	})
	require.False(t, ran)
	t.Setenv("GENDURABLE_PROOF", "1")
	t.Run("run", func(t *testing.T) {
		tier.Needs(t, tier.Proof)
		ran = true
	})
	require.True(t, ran)
}
