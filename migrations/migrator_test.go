package migrations_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

func TestUpIsIdempotent(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	applied, err := d.migrator().Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, migrations.Versions(), applied)
	applied, err = d.migrator().Up(t.Context())
	require.NoError(t, err)
	require.Empty(t, applied)
	d.requireCurrent(t)
}

func TestDownOfTheNewestStepAndUpAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, migrations.Latest())
	undone, err := d.migrator().Down(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{migrations.Latest()}, undone)
	require.Equal(t, newDatabase(t).at(t, beforeIndexes).catalog(t), d.catalog(t), "all of it is gone")
	status, err := d.migrator().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, migrations.StateOlder, status.State)
	require.Equal(t, []string{migrations.Latest()}, status.Pending)

	applied, err := d.migrator().Up(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{migrations.Latest()}, applied)
	d.requireCurrent(t)
}

func TestToEveryVersionDownAndUpAgain(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, base)
	before := d.catalog(t)
	d.at(t, migrations.Latest())
	d.exec(t, `INSERT INTO gen_durable (fsm, step, toy) SELECT 'm', 's', 'toy' FROM generate_series(1, 100)`)
	for _, version := range slices.Backward(migrations.Versions()[:len(migrations.Versions())-1]) {
		undone, err := d.migrator().To(t.Context(), version)
		require.NoError(t, err)
		require.Len(t, undone, 1)
	}
	require.Equal(t, before, d.catalog(t))
	require.Equal(t, 100, one[int](t, d, `SELECT count(*)::int FROM gen_durable`), "rows survive")
	d.at(t, migrations.Latest()).requireCurrent(t)

	undone, err := d.migrator().To(t.Context(), migrations.Empty)
	require.NoError(t, err)
	require.Len(t, undone, len(migrations.Versions()))
	require.Equal(t, migrations.Latest(), undone[0])
	require.Equal(t, []string{"atlas_schema_revisions"}, column[string](t, d,
		`SELECT relname::text FROM pg_class WHERE relnamespace = 'gendurable'::regnamespace AND relkind IN ('r', 'p', 'S', 'v')`))
	require.Empty(t, column[string](t, d, `SELECT proname::text FROM pg_proc WHERE pronamespace = 'gendurable'::regnamespace`))
	require.Empty(t, column[string](t, d, `SELECT typname::text FROM pg_type WHERE typnamespace = 'gendurable'::regnamespace AND typtype = 'e'`))
	undone, err = d.migrator().Down(t.Context())
	require.NoError(t, err)
	require.Empty(t, undone)
	d.at(t, migrations.Latest()).requireCurrent(t)
}

func TestUnknownVersionIsRefused(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	_, err := d.migrator().To(t.Context(), "20000101000000")
	require.EqualError(t, err, `migrate schema "gendurable": there is no version "20000101000000": migrations.Versions lists them`)
	_, err = migrate.Migrator{}.Up(t.Context())
	require.EqualError(t, err, "migrate: Migrator.Pool is nil")
	_, err = migrate.Migrator{}.Status(t.Context())
	require.EqualError(t, err, "read the migration status: Migrator.Pool is nil")
}

func TestEveryMigrationHasAnInverse(t *testing.T) {
	t.Parallel()
	up, err := migrations.FS().ReadDir(".")
	require.NoError(t, err)
	down, err := migrations.FS().ReadDir("down")
	require.NoError(t, err)
	var names, inverses []string
	for _, entry := range up {
		if !entry.IsDir() && entry.Name() != "atlas.sum" {
			names = append(names, entry.Name())
		}
	}
	for _, entry := range down {
		inverses = append(inverses, entry.Name())
	}
	require.Len(t, names, len(migrations.Versions()))
	require.Equal(t, names, inverses)
}

func TestStatusAndCheckTellMissingOlderNewer(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	latest := migrations.Latest()
	requireState := func(want *migrations.SchemaError, message string) {
		t.Helper()
		err := migrations.Check(t.Context(), d, "")
		found, ok := errors.AsType[*migrations.SchemaError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, want, found)
		require.EqualError(t, err, message)
		status, err := d.migrator().Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, want.State, status.State)
		require.Equal(t, want.Current, status.Current)
	}
	const remedy = `run gendurable migrate up, or gendurable migrate dir and atlas migrate apply --env gendurable, ` +
		`with DATABASE_URL set, or call migrate.Migrator.Up`
	missing := &migrations.SchemaError{Schema: "gendurable", State: migrations.StateMissing, Current: migrations.Empty, Latest: latest}
	missingMessage := `schema "gendurable" is missing: the program needs version ` + latest + `; ` + remedy
	requireState(missing, missingMessage)
	d.exec(t, `CREATE SCHEMA gendurable`)
	requireState(missing, missingMessage)

	d.at(t, base)
	requireState(&migrations.SchemaError{Schema: "gendurable", State: migrations.StateOlder, Current: base, Latest: latest},
		`schema "gendurable" is older than this program: it has version `+base+`, the program needs `+latest+`; `+remedy)
	status, err := d.migrator().Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, migrations.Versions()[1:], status.Pending)

	d.at(t, latest)
	require.NoError(t, migrations.Check(t.Context(), d, ""))

	// A schema whose last migration was interrupted is older, too.
	d.exec(t, `UPDATE atlas_schema_revisions SET applied = 0 WHERE version = $1`, latest)
	err = migrations.Check(t.Context(), d, "")
	require.ErrorContains(t, err, "is older than this program")
	d.exec(t, `UPDATE atlas_schema_revisions SET applied = total`)

	const future = "29991231235959"
	d.exec(t, `INSERT INTO atlas_schema_revisions SELECT $1, description, type, applied, total, executed_at, execution_time, error, error_stmt,
		hash, partial_hashes, operator_version FROM atlas_schema_revisions WHERE version = $2`, future, latest)
	newer := &migrations.SchemaError{Schema: "gendurable", State: migrations.StateNewer, Current: future, Latest: latest}
	requireState(newer, `schema "gendurable" is newer than this program: it has version `+future+`, the program knows up to `+latest+
		`; run the newer program, or go back with its migrate.Migrator.To(ctx, "`+latest+`")`)
	for _, migrate := range []func(context.Context) ([]string, error){d.migrator().Up, d.migrator().Down} {
		_, err = migrate(t.Context())
		found, ok := errors.AsType[*migrations.SchemaError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, newer, found)
	}
}

func TestCheckNeedsNoMoreThanToRead(t *testing.T) {
	t.Parallel()
	d := newDatabase(t).at(t, migrations.Latest())
	tx, err := d.Begin(t.Context())
	require.NoError(t, err)
	for _, statement := range []string{
		`SET TRANSACTION READ ONLY`, `SET LOCAL search_path = ''`,
	} {
		_, err := tx.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, migrations.Check(t.Context(), tx, ""))
	require.NoError(t, tx.Rollback(t.Context()))

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	err = migrations.Check(canceled, d, "")
	require.ErrorContains(t, err, `check schema "gendurable": look for the revision table`)
	_, err = d.migrator().Status(canceled)
	require.ErrorIs(t, err, context.Canceled)
}

func TestOtherSchemasAndForeignSearchPaths(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"public", "other", "My Schema", `quo"ted`, "Größe", "select"} {
		t.Run(schema, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			pool := pgtest.Pool(t, url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["search_path"] = "host" })
			// The host has tables of the same names, which its search_path finds.
			_, err := pool.Exec(t.Context(), `CREATE SCHEMA host; CREATE TABLE gen_durable (mine int); CREATE TABLE signals (mine int);
				CREATE TABLE atlas_schema_revisions (mine int)`)
			require.NoError(t, err)

			m := migrate.Migrator{Pool: pool, Schema: schema}
			applied, err := m.Up(t.Context())
			require.NoError(t, err)
			require.Equal(t, migrations.Versions(), applied)
			require.NoError(t, migrations.Check(t.Context(), pool, schema))
			require.Error(t, migrations.Check(t.Context(), pool, ""))

			rows, err := pool.Query(t.Context(), `SELECT nspname || ' ' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
				WHERE relkind = 'r' AND (nspname = 'host' OR nspname = $1) ORDER BY 1`, schema)
			require.NoError(t, err)
			tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			require.ElementsMatch(t, []string{
				"host atlas_schema_revisions", "host gen_durable", "host signals",
				schema + " atlas_schema_revisions", schema + " definitions", schema + " edges", schema + " gate_keys", schema + " gates", schema + " gen_durable", schema + " history_rest",
				schema + " kept_signals", schema + " lost_claims", schema + " paused_queues", schema + " recorded_machines", schema + " schedules", schema + " signals", schema + " windows",
				schema + " workers",
			}, tables)
			_, err = m.To(t.Context(), migrations.Empty)
			require.NoError(t, err)
			var hostsOwn int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM gen_durable`).Scan(&hostsOwn))
		})
	}
}

func TestRemedyNamesAnotherSchema(t *testing.T) {
	t.Parallel()
	err := &migrations.SchemaError{Schema: "My Schema", State: migrations.StateMissing}
	require.ErrorContains(t, err, `gendurable migrate up --schema "My Schema"`)
	require.ErrorContains(t, err, `gendurable migrate dir --schema "My Schema"`)
}

func TestMigratorLeavesThePoolAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.Database(t), func(config *pgxpool.Config) { config.MaxConns = 1 })
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release()
	_, err = migrate.Migrator{Pool: pool}.Up(t.Context())
	require.NoError(t, err)
	for setting, want := range map[string]string{"search_path": `"$user", public`, "lock_timeout": "0"} {
		var value string
		require.NoError(t, held.QueryRow(t.Context(), "SELECT current_setting($1)", setting).Scan(&value))
		require.Equal(t, want, value)
	}
	var locks int
	require.NoError(t, held.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_database b ON b.oid = l.database
		WHERE locktype = 'advisory' AND datname = current_database()`).Scan(&locks))
	require.Zero(t, locks, "the lock is given back")
}

// A role's limits for its statements must not end an index build, and the pool's exec mode must not
// matter.
func TestMigratorUnderARolesLimits(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, pgtest.Database(t), func(config *pgxpool.Config) {
				config.ConnConfig.DefaultQueryExecMode = mode
				maps.Copy(config.ConnConfig.RuntimeParams, map[string]string{
					"statement_timeout": "1s", "lock_timeout": "10ms", "default_transaction_isolation": "serializable",
				})
			})
			_, err := migrate.Migrator{Pool: pool}.Up(t.Context())
			require.NoError(t, err)
			require.NoError(t, migrations.Check(t.Context(), pool, ""))
			_, err = migrate.Migrator{Pool: pool}.To(t.Context(), base)
			require.NoError(t, err)
		})
	}
}
