package environments

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrate"
)

// role makes a role with settings ("name = value"), and drops it at the end of the test. Call it
// before the databases in which the role has rights are made, so that those are dropped first.
func role(t *testing.T, settings ...string) (name string, as func(direct string) string) {
	t.Helper()
	pool := pgtest.Pool(t, pgtest.Database(t))
	name = "app_" + strings.ToLower(rand.Text())
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP ROLE "+name)
		require.NoError(t, err)
	})
	execute(t, pool, "CREATE ROLE "+name+" LOGIN PASSWORD 'app'")
	for _, setting := range settings {
		execute(t, pool, "ALTER ROLE "+name+" SET "+setting)
	}
	return name, func(direct string) string {
		u, err := url.Parse(direct)
		require.NoError(t, err)
		u.User = url.UserPassword(name, "app")
		return u.String()
	}
}

// app returns a migrated database with a role that has the rights that the guide gives to a worker,
// and no others.
func app(t *testing.T, settings ...string) environment {
	t.Helper()
	e, _ := roleOf(t, "worker", settings...)
	return e
}

// roleOf returns a migrated database with a role that has the rights that the guide gives to a job,
// and no others.
func roleOf(t *testing.T, job string, settings ...string) (e environment, name string) {
	t.Helper()
	name, as := role(t, settings...)
	direct := pgtest.Migrated(t)
	pool := pgtest.Pool(t, direct)
	// A hardened database: each role that calls a function has a grant for it.
	execute(t, pool, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA gendurable FROM PUBLIC")
	for _, statement := range rights(t, job) {
		execute(t, pool, strings.TrimSuffix(statement, job)+name)
	}
	return environment{url: as(direct), direct: direct}, name
}

// rights returns the guide's statements for a job.
func rights(t *testing.T, job string) []string {
	t.Helper()
	guide, err := os.ReadFile("../../docs/guide/operations.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)## Rights\n.*?```sql\n(.*?)```").FindStringSubmatch(string(guide))
	require.NotNil(t, block, "the guide does not say which rights")
	var found []string
	for statement := range strings.SplitSeq(block[1], ";") {
		if statement = strings.TrimSpace(statement); strings.HasSuffix(statement, " "+job) {
			found = append(found, statement)
		}
	}
	require.NotEmpty(t, found, "the guide gives no rights to %s", job)
	return found
}

func execute(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	_, err := pool.Exec(t.Context(), sql)
	require.NoError(t, err, sql)
}

func TestDefaultsOfIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range tier.Pick([]string{"serializable"}, []string{"serializable", "repeatable read"}) {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			scenario(t, app(t, "default_transaction_isolation = '"+level+"'"))
		})
	}
}

// 50 ms suffice for each statement of the engine alone, but not for one that waits, or that is sent
// while the machine is busy.
var tight = []string{"statement_timeout = '50ms'", "lock_timeout = '50ms'", "idle_in_transaction_session_timeout = '50ms'"}

func TestTightTimeouts(t *testing.T) {
	t.Parallel()
	scenario(t, app(t, tight...))
}

// From Postgres 17 on, a role may also have a timeout of transactions, which ends their sessions.
func TestATightTimeoutOfTransactions(t *testing.T) {
	t.Parallel()
	if major(t) < 17 {
		return // no older server knows it
	}
	e := app(t, "transaction_timeout = '50ms'")
	e.expected = []string{preparing}
	scenario(t, e)
}

// preparing is the complaint of a client whose new session took longer to prepare the engine's
// statements, on a busy machine, than a transaction may take until the engine lifts the bound.
const preparing = "(prepare): FATAL: terminating connection due to transaction timeout"

// hungUp are the complaints of a client that finds that the server has ended an idle session.
var hungUp = []string{"SQLSTATE 57P05", "unexpected EOF", "conn closed", "connection reset", "broken pipe"}

// A role's idle sessions end before the engine needs them again, the sessions of its pool and of
// its heartbeats. It goes on with new ones; it only complains more.
func TestIdleSessionsThatEnd(t *testing.T) {
	t.Parallel()
	e := app(t, "idle_session_timeout = '50ms'")
	e.expected = hungUp
	scenario(t, e)
}

func TestForeignSearchPaths(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"nothing": "''", "look-alikes": "host, pg_catalog, gendurable"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := app(t, "search_path = "+path)
			pool := pgtest.Pool(t, e.direct)
			execute(t, pool, `CREATE SCHEMA host; CREATE TABLE host.gen_durable (id text); CREATE TABLE host.signals (id text);
				CREATE TYPE host.durable_status AS ENUM ('nonsense'); CREATE SEQUENCE host.gen_durable_token;
				CREATE TABLE host.atlas_schema_revisions (version text); GRANT USAGE ON SCHEMA host TO public;
				GRANT ALL ON ALL TABLES IN SCHEMA host TO public`)
			scenario(t, e)
		})
	}
}

// A role with the tightest settings migrates a schema of another name.
func TestMigratedByTheTightestRole(t *testing.T) {
	t.Parallel()
	const schema = `Engine "2"`
	// A migration keeps its session between statements, for as long as the processor lets it wait.
	limits := append([]string{"idle_session_timeout = '500ms'"}, tight...)
	if major(t) >= 17 {
		limits = append(limits, "transaction_timeout = '50ms'")
	}
	name, as := role(t, append([]string{"default_transaction_isolation = serializable", "search_path = ''"}, limits...)...)
	direct := pgtest.Database(t)
	admin := pgtest.Pool(t, direct)
	execute(t, admin, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize()+" AUTHORIZATION "+name)
	pool := pgtest.Pool(t, as(direct))
	_, err := migrate.Migrator{Pool: pool, Schema: schema}.Up(t.Context())
	require.NoError(t, err)
	scenario(t, environment{url: as(direct), direct: direct, schema: schema, expected: append([]string{preparing}, hungUp...)})
}
