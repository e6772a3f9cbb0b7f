package pgclone_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A connection is used again until all are closed. The key has the database, so no other test takes
// it.
func TestKeptConnectionsAreUsedAgain(t *testing.T) {
	config, err := pgxpool.ParseConfig(pgtest.Database(t))
	require.NoError(t, err)
	var kept *pgx.Conn
	use := func() (pid uint32) {
		require.NoError(t, pgclone.OnKept(t.Context(), config, func(conn *pgx.Conn) error {
			kept, pid = conn, conn.PgConn().PID()
			return nil
		}))
		return pid
	}
	first := use()
	require.Equal(t, first, use())
	pgclone.CloseKept(t.Context())
	require.True(t, kept.IsClosed())
	require.NotEqual(t, first, use())
	pgclone.CloseKept(t.Context())
}
