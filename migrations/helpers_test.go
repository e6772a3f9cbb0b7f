package migrations_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

const (
	patience = 60 * time.Second
	tick     = 10 * time.Millisecond
)

// database is a fresh database with a pool whose search_path is the default schema, and a migrator
// for that.
type database struct {
	*pgxpool.Pool
	url string
}

func newDatabase(t *testing.T) database {
	t.Helper()
	url := pgtest.Database(t)
	return database{url: url, Pool: pgtest.Pool(t, url, func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["search_path"] = migrations.DefaultSchema
	})}
}

func (d database) migrator() migrate.Migrator { return migrate.Migrator{Pool: d.Pool} }

// at migrates to a version.
func (d database) at(t *testing.T, version string) database {
	t.Helper()
	_, err := d.migrator().To(t.Context(), version)
	require.NoError(t, err)
	return d
}

func (d database) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := d.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// column returns the first column of all rows.
func column[T any](t *testing.T, d database, sql string, args ...any) []T {
	t.Helper()
	rows, err := d.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return values
}

func one[T any](t *testing.T, d database, sql string, args ...any) T {
	t.Helper()
	values := column[T](t, d, sql, args...)
	require.Len(t, values, 1)
	return values[0]
}

// requireCurrent asserts that every migration is applied, once, and that no index is invalid or
// left over.
func (d database) requireCurrent(t *testing.T) {
	t.Helper()
	status, err := d.migrator().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, migrations.Status{
		Schema: migrations.DefaultSchema, State: migrations.StateCurrent, Current: migrations.Latest(), Latest: migrations.Latest(),
	}, status)
	require.NoError(t, migrations.Check(t.Context(), d, ""))
	require.Equal(t, migrations.Versions(), column[string](t, d,
		`SELECT version FROM atlas_schema_revisions WHERE version NOT LIKE '.%' AND applied = total ORDER BY version`))
	require.ElementsMatch(t, append([]string{firstIndexDef}, indexes...), d.indexes(t))
	require.Empty(t, column[string](t, d, `SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid`))
}

// catalog returns the relations, columns, constraints and functions of the schema.
func (d database) catalog(t *testing.T) []string {
	t.Helper()
	return column[string](t, d, `WITH n AS (SELECT 'gendurable'::regnamespace AS id)
		SELECT format('%s %s', c.relkind, c.relname) FROM pg_class c JOIN n ON c.relnamespace = n.id UNION ALL
		SELECT format('column %s.%s', c.relname, a.attname) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
			JOIN n ON c.relnamespace = n.id WHERE a.attnum > 0 AND NOT a.attisdropped UNION ALL
		SELECT format('constraint %s', c.conname) FROM pg_constraint c JOIN n ON c.connamespace = n.id UNION ALL
		SELECT format('function %s', p.proname) FROM pg_proc p JOIN n ON p.pronamespace = n.id ORDER BY 1`)
}

// waiting counts the database's sessions that wait for a lock in a statement like pattern.
func (d database) waiting(t *testing.T, pattern string) int {
	t.Helper()
	return one[int](t, d, `SELECT count(*)::int FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1`, pattern)
}

func (d database) awaitWaiting(t *testing.T, pattern string) {
	t.Helper()
	require.Eventually(t, func() bool { return d.waiting(t, pattern) > 0 }, patience, tick, "nobody waits in %q", pattern)
}

// hold keeps a transaction open that has written to gen_durable, until release is called. It holds
// up a concurrent index build at its start, and every change of the table.
func (d database) hold(t *testing.T) (release func()) {
	t.Helper()
	return d.holdOpen(t, pgx.ReadCommitted, `INSERT INTO gen_durable (fsm, step) VALUES ('holder', 'holding')`)
}

// holdSnapshot keeps a transaction open that has only read, from another table. It holds up a
// concurrent index build at its end, and nothing else.
func (d database) holdSnapshot(t *testing.T) (release func()) {
	t.Helper()
	return d.holdOpen(t, pgx.RepeatableRead, `SELECT`)
}

func (d database) holdOpen(t *testing.T, isolation pgx.TxIsoLevel, sql string) (release func()) {
	t.Helper()
	tx, err := d.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), sql)
	require.NoError(t, err)
	release = sync.OnceFunc(func() { _ = tx.Commit(context.WithoutCancel(t.Context())) })
	t.Cleanup(release)
	return release
}

// root is the root of the repository.
const root = ".."

// atlasCLI finds the pinned Atlas CLI, which "make atlas" builds: that takes minutes on a new
// machine, and no test waits for it.
func atlasCLI(t *testing.T) string {
	t.Helper()
	tier.Needs(t, tier.CI)
	path, err := filepath.Abs(filepath.Join(root, "bin", "atlas"))
	require.NoError(t, err)
	require.FileExists(t, path, "make atlas builds it")
	return path
}

// cli returns a run of the real Atlas CLI on the database, with the project's atlas.hcl.
func (d database) cli(t *testing.T, dev string, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), atlasCLI(t), append(args, "--env", "local")...)
	command.Dir = root
	command.Env = append(os.Environ(), "DATABASE_URL="+d.url, "DEV_DATABASE_URL="+dev, "ATLAS_NO_UPDATE_NOTIFIER=true", "HOME="+t.TempDir())
	return command
}

// atlas runs the CLI on the migrations and the toys, and returns what it printed.
func (d database) atlas(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := d.cli(t, "", append(args, "--dir", "file://"+toyDir(t))...).CombinedOutput()
	return string(out), err
}

// atlasApply applies all migrations with the CLI.
func (d database) atlasApply(t *testing.T, args ...string) {
	t.Helper()
	out, err := d.atlas(t, append([]string{"migrate", "apply"}, args...)...)
	require.NoError(t, err, out)
}

// background runs f beside the test and returns a function that waits for its error. f must end
// with t.Context: a failed test ends only after f, since f must not use a test that is over.
func background(t *testing.T, f func() error) (wait func() error) {
	t.Helper()
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done) // also if f fails the test, which ends the goroutine
		err = f()
	}()
	t.Cleanup(func() { <-done })
	return func() error {
		t.Helper()
		select {
		case <-done:
			return err
		case <-time.After(patience):
			require.FailNow(t, "still running")
			return nil
		}
	}
}

func lines(text string) []string {
	var trimmed []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		trimmed = append(trimmed, strings.TrimSpace(line))
	}
	return trimmed
}
