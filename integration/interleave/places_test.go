package interleave

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A statement that has got another text leaves a mutant of its words without effect. This shows in
// each tier, while most searches for mutants run in make proof only.
func TestMutantsHaveTheirPlaces(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../internal/store/testdata/sql/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, m := range everyMutant() {
		var queries []*pgx.QueuedQuery
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			queries = append(queries, &pgx.QueuedQuery{SQL: string(text)})
		}
		require.True(t, m.change("A", queries) || m.change("B", queries), m.name)
	}
}
