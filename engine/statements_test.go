package engine

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// A proxy that pools transactions and keeps named statements is to them what two sessions are: that
// is what PgBouncer does from 1.21 on.
func TestKeepsStatements(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	bouncer := pgtest.Bouncer(t, direct)
	for url, want := range map[string]bool{direct: true, bouncer.URL(direct): false} {
		a, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		b, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		for range 2 { // what the first look left in the sessions does not mislead the second
			kept, err := prober{entpgx.New(pgtest.Pool(t, direct))}.keeps(t.Context(), a.PgConn(), b.PgConn())
			require.NoError(t, err)
			require.Equal(t, want, kept)
		}
		if want {
			var left int
			require.NoError(t, a.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements", pgx.QueryExecModeSimpleProtocol).Scan(&left))
			require.Zero(t, left, "the connection goes back to its pool as it was")
		}
		require.NoError(t, a.Close(context.Background()))
		require.NoError(t, b.Close(context.Background()))
	}
}
