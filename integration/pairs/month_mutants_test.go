package pairs

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// replace makes a change that replaces a part of a statement's text, and says whether it did.
func replace(of, with string, done *atomic.Bool) pgtest.Batches {
	return func(queries []*pgx.QueuedQuery) {
		for _, q := range queries {
			if text := strings.ReplaceAll(q.SQL, of, with); text != q.SQL {
				q.SQL = text
				done.Store(true)
			}
		}
	}
}

// Statements that are broken on purpose, each of which a few days show.
func TestAMonthFindsMutants(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.Proof)
	for _, mutant := range []struct {
		name, of, with string
		lives          []string
		sign           string
	}{
		{"the GC keeps nothing for what is above it", "AND (g.parent_id IS NULL OR NOT EXISTS (", "AND (true OR NOT EXISTS (",
			[]string{"join", "graph", "signal"}, "the GC deletes what is needed|a join of|a graph lacks"},
		{"the GC keeps no node for those behind it", "AND (g.node IS NULL OR NOT EXISTS (", "AND (true OR NOT EXISTS (",
			[]string{"left", "signal"}, "the GC deletes what is needed|a node waits for one that is gone"},
		{"the history keeps its days", "gen_durable_roll_history($1::bigint", "gen_durable_roll_history(1000 * $1::bigint",
			[]string{"again"}, "the history keeps days for ever"},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			t.Parallel()
			var done atomic.Bool
			m := newMonth(t, 1, mutant.lives, replace(mutant.of, mutant.with, &done))
			violations := m.play(6, 1)
			require.True(t, done.Load(), "no statement has the text that it changes")
			require.NotEmpty(t, violations)
			require.Regexp(t, mutant.sign, violations[0].kind)
		})
	}
}
