package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgclone"
)

// Database returns the superuser's URL of a fresh empty database. The end of the test drops it, and
// ends its connections.
func Database(t testing.TB) string {
	t.Helper()
	return create(t, "template1")
}

// create makes a database from a template and drops it when the test ends.
func create(t testing.TB, template string) string {
	t.Helper()
	on, err := config()
	require.NoError(t, err)
	name, err := pgclone.Create(t.Context(), on, template)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		require.NoError(t, pgclone.Drop(ctx, on, name))
	})
	address, err := server()
	require.NoError(t, err)
	address, err = inDatabase(address, name)
	require.NoError(t, err)
	return address
}

// Pool returns a pool on the database; the end of the test closes it. configure changes its
// configuration before it opens, e.g. the number of connections or the exec mode.
func Pool(t testing.TB, url string, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	for _, change := range configure {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
