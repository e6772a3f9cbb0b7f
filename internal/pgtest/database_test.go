package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
)

func TestDatabasesAreApartAndGoWithTheirTest(t *testing.T) {
	t.Parallel()
	var gone string
	t.Run("its own", func(t *testing.T) {
		gone = pgtest.Database(t)
		require.NotEqual(t, gone, pgtest.Database(t))
		// This connection stays open on purpose: it must not keep the database from being dropped.
		conn, err := pgx.Connect(t.Context(), gone)
		require.NoError(t, err)
		var tables int
		row := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
		require.NoError(t, row.Scan(&tables))
		require.Zero(t, tables)
	})
	_, err := pgx.Connect(t.Context(), gone)
	require.ErrorContains(t, err, "3D000")
}

func TestPoolIsConfiguredAndClosed(t *testing.T) {
	t.Parallel()
	var pool *pgxpool.Pool
	t.Run("its own", func(t *testing.T) {
		pool = pgtest.Pool(t, pgtest.Database(t), func(config *pgxpool.Config) { config.MaxConns = 3 })
		require.EqualValues(t, 3, pool.Stat().MaxConns())
		require.NoError(t, pool.Ping(t.Context()))
	})
	require.ErrorContains(t, pool.Ping(t.Context()), "closed pool")
}

func TestMigratedDatabasesHoldTheSchema(t *testing.T) {
	t.Parallel()
	first, second := pgtest.Migrated(t), pgtest.Migrated(t)
	require.NotEqual(t, first, second)
	for _, url := range []string{first, second} {
		var rows int
		require.NoError(t, pgtest.Pool(t, url).QueryRow(t.Context(), "SELECT count(*) FROM gendurable.gen_durable").Scan(&rows))
		require.Zero(t, rows)
	}
}
