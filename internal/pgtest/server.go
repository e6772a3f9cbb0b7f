// Package pgtest gives each test its own database on one shared Postgres server.
// GENDURABLE_TEST_URL holds the superuser's URL of the server; "make test" sets it for a whole
// run. Without it, the test process starts a throwaway cluster.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgdev"
)

// urlVariable is the name that the command withpg sets.
const urlVariable = "GENDURABLE_TEST_URL"

// cleanupTimeout bounds the clean-up after a test, whose own context has ended by then.
const cleanupTimeout = 2 * time.Minute

// server returns the URL of the process's server. No test stops a cluster that is started here,
// since none knows that it is the last: the server goes down with the process, and a later start
// removes its directory.
var server = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(urlVariable); given != "" {
		return given, nil
	}
	cluster, err := pgdev.Start(context.Background(), pgdev.WithoutFsync(), pgdev.WithSetting("max_connections", "300"))
	if err != nil {
		return "", fmt.Errorf("start a server for the tests: %w", err)
	}
	return cluster.URL(""), nil
})

// URL returns the superuser's URL of the server's maintenance database, for tests that make their
// own databases.
func URL(t testing.TB) string {
	t.Helper()
	address, err := server()
	require.NoError(t, err)
	return address
}

// config returns the configuration of a pool on the server's maintenance database, as superuser.
func config() (*pgxpool.Config, error) {
	address, err := server()
	if err != nil {
		return nil, err
	}
	parsed, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("read the server's URL: %w", err)
	}
	return parsed, nil
}

// inDatabase returns the URL with another database.
func inDatabase(address, name string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("read the server's URL: %w", err)
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}
