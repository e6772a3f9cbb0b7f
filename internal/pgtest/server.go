// Package pgtest gives tests databases of their own on one shared Postgres server: the one whose superuser's URL is in
// GENDURABLE_TEST_URL, as "make test" sets it for a whole run, else a throwaway cluster of the test process.
package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgdev"
)

// urlVariable is set by the command withpg.
const urlVariable = "GENDURABLE_TEST_URL"

// cleanupTimeout bounds what is removed after a test, whose own context has ended by then.
const cleanupTimeout = 30 * time.Second

// server returns the URL of the process's server. A cluster started here has no end of its own, since no test knows
// that it is the last: the server goes down with the process, and a later start removes its directory.
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

// administer runs f on a short connection to the server's maintenance database, as superuser.
func administer(ctx context.Context, t testing.TB, f func(conn *pgx.Conn)) {
	t.Helper()
	address, err := server()
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, address)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	f(conn)
}

// inDatabase is the URL with another database.
func inDatabase(address, name string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("read the server's URL: %w", err)
	}
	parsed.Path = "/" + name
	return parsed.String(), nil
}
