package pgclone_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgclone"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/migrations"
)

// made returns the name of a database that a test made this long ago.
func made(ago time.Duration) string {
	return fmt.Sprintf("gendurable_test_%x_%s", time.Now().Add(-ago).Unix(), strings.ToLower(rand.Text()))
}

func TestLeftoversAreSweptAndNothingElse(t *testing.T) {
	t.Parallel()
	server, err := pgxpool.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	pool := pgtest.Pool(t, pgtest.URL(t))
	role := "owner_" + strings.ToLower(rand.Text())
	statement := func(sql string) {
		_, err := pool.Exec(context.Background(), sql)
		require.NoError(t, err, sql)
	}
	statement("CREATE ROLE " + role)
	t.Cleanup(func() { statement("DROP ROLE " + role) })
	create := func(name, options string) string {
		t.Helper()
		statement("CREATE DATABASE " + name + options)
		t.Cleanup(func() { statement("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") })
		return name
	}
	exists := func(name string) (yes bool) {
		t.Helper()
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&yes))
		return yes
	}

	var gone, kept []string
	gone = append(gone, create(made(2*time.Hour), ""), create(made(1000*time.Hour), " ALLOW_CONNECTIONS false"))
	kept = append(kept,
		create(made(time.Minute), ""),                    // of a test that runs
		create(made(2*time.Hour), " OWNER "+role),        // another role's
		create(strings.ToLower("test_"+rand.Text()), ""), // not a name of this package
		create(made(2*time.Hour)+"x", ""),                // nor this one
		create("gendurable_test_"+strings.ToLower(rand.Text()), ""))
	used := create(made(2*time.Hour), "")
	conn, err := pgx.ConnectConfig(t.Context(), pgclone.In(server, used).ConnConfig)
	require.NoError(t, err)
	defer conn.Close(context.Background())

	sweep := func() {
		t.Helper()
		_, err := pgclone.Template(t.Context(), server, migrations.DefaultSchema)
		require.NoError(t, err)
	}
	sweep()
	for _, name := range gone {
		require.False(t, exists(name), name)
	}
	for _, name := range append(kept, used) {
		require.True(t, exists(name), name)
	}

	require.NoError(t, conn.Close(t.Context()))
	steady.Eventually(t, func() bool { // its backend may take a moment to end
		sweep()
		return !exists(used)
	})
}

func TestNamesAreSweptOnceTheyAreOld(t *testing.T) {
	t.Parallel()
	name := pgclone.Name()
	require.Regexp(t, `^gendurable_test_[0-9a-f]{8}_[a-z2-7]{26}$`, name)
	require.LessOrEqual(t, len(name), 63, "Postgres would cut it")
}
