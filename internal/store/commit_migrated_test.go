package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/step"
)

// The statement for converted claims is the general one, and writes the version.
func TestMigratedSQL(t *testing.T) {
	t.Parallel()
	for text, versions := range map[string]string{migratedSQL: "$20", migratedRecordedSQL: "$23"} {
		require.Equal(t, 1, strings.Count(text, "fsm_version = coalesce(u.version, g.fsm_version)"))
		require.Equal(t, 1, strings.Count(text, "unnest("+versions+"::int[]) AS version"))
	}
	require.NotContains(t, commitSQL, "$20")
	require.NotContains(t, commitRecordedSQL, "$23")
}

// The statement for ends of nodes is the same, and leaves out what is held up.
func TestCommitNodesSQL(t *testing.T) {
	t.Parallel()
	for text, nodes := range map[string]string{commitNodesSQL: "$21", commitNodesRecordedSQL: "$24"} {
		require.Equal(t, 1, strings.Count(text, "held AS MATERIALIZED (SELECT n.id FROM unnest("+nodes+"::bigint[]) AS n(id)"))
		require.Equal(t, 1, strings.Count(text, ") AND t.id <> ALL(ARRAY(SELECT id FROM held))"))
	}
	require.NotContains(t, migratedSQL, "$21")
	require.NotContains(t, migratedRecordedSQL, "$24")
}

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
