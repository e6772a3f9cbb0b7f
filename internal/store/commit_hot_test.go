package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// T82: a commit that keeps its claims updates in place, at half the cost, since it changes no
// indexed column, and no index's condition names a column that it changes. A new index could undo
// that silently.
func TestCommitsThatKeepTheirClaimsUpdateInPlace(t *testing.T) {
	b := newBench(t)
	counted := b.beside(func(c *pgxpool.Config) { c.MaxConns = 1 })
	updates := func() (all, inPlace int) {
		counted.exec(`SELECT pg_stat_force_next_flush()`)
		counted.exec(`SELECT pg_stat_clear_snapshot()`)
		return counted.number(`SELECT n_tup_upd FROM pg_stat_all_tables WHERE relid = 'gendurable.gen_durable'::regclass`),
			counted.number(`SELECT n_tup_hot_upd FROM pg_stat_all_tables WHERE relid = 'gendurable.gen_durable'::regclass`)
	}
	entries := counted.entries(5, true) // which fit into one page three times over
	all, inPlace := updates()
	require.NoError(t, counted.commitOnce(entries, false))
	allAfter, inPlaceAfter := updates()
	require.Equal(t, 5, allAfter-all)
	require.Equal(t, 5, inPlaceAfter-inPlace)
}
