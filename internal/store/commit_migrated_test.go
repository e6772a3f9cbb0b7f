package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
)

// Only the general statement writes a version, so the others take no outcome of a converted claim
// (T132).
func TestAConvertedClaimGoesByTheGeneralStatement(t *testing.T) {
	t.Parallel()
	done := Entry{Claim: &step.Claim{ID: 1}, Commit: &step.Commit{Kind: step.Done}}
	require.Len(t, newBatch("w", "m", []Entry{done}, false).ended.ids, 1)
	done.Commit.Version = 2
	b := newBatch("w", "m", []Entry{done}, false)
	require.Empty(t, b.ended.ids)
	require.Equal(t, []int64{1}, b.ids)
	require.EqualValues(t, 2, *b.versions[0])
}
