package pgtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Database returns the superuser's URL of a fresh empty database, which is dropped when the test ends, connections and
// all.
func Database(t testing.TB) string {
	t.Helper()
	return create(t, "template1")
}

// create makes a database from a template and drops it when the test ends.
func create(t testing.TB, template string) string {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	administer(t.Context(), t, func(conn *pgx.Conn) {
		_, err := conn.Exec(t.Context(), "CREATE DATABASE "+quoted(name)+" TEMPLATE "+quoted(template))
		require.NoError(t, err)
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		administer(ctx, t, func(conn *pgx.Conn) {
			_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted(name)+" WITH (FORCE)")
			require.NoError(t, err)
		})
	})
	address, err := server()
	require.NoError(t, err)
	address, err = inDatabase(address, name)
	require.NoError(t, err)
	return address
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// Pool returns a pool on the database, closed when the test ends. configure changes its configuration before it opens,
// e.g. the number of connections or the exec mode.
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
