package entpgx_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// inModes runs the test once per exec mode, each in a new schema that setup has prepared.
func inModes(t *testing.T, setup string, test func(t *testing.T, driver *entpgx.Driver)) {
	t.Helper()
	database := pgtest.Database(t)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			test(t, driverOn(t, database, setup, mode))
		})
	}
}

// newDriver returns a driver on a new database.
func newDriver(t *testing.T, setup string, mode pgx.QueryExecMode, configure ...func(*pgxpool.Config)) *entpgx.Driver {
	t.Helper()
	return driverOn(t, pgtest.Database(t), setup, mode, configure...)
}

func driverOn(t *testing.T, database, setup string, mode pgx.QueryExecMode, configure ...func(*pgxpool.Config)) *entpgx.Driver {
	t.Helper()
	return driverIn(t, database, mode.String(), setup, mode, configure...)
}

// driverIn is driverOn with a schema of that name.
func driverIn(t *testing.T, database, name, setup string, mode pgx.QueryExecMode, configure ...func(*pgxpool.Config)) *entpgx.Driver {
	t.Helper()
	schema := pgx.Identifier{name}.Sanitize()
	pool := pgtest.Pool(t, database, func(config *pgxpool.Config) {
		config.MaxConns = 2
		config.ConnConfig.DefaultQueryExecMode = mode
		config.ConnConfig.RuntimeParams["timezone"] = "UTC"
		config.ConnConfig.RuntimeParams["search_path"] = schema
		for _, change := range configure {
			change(config)
		}
	})
	exec(t, pool, "CREATE SCHEMA "+schema+"; "+setup)
	return entpgx.New(pool)
}

// exec runs several statements at once, which only the simple protocol can.
func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// scalar reads a single value on the pool.
func scalar[T any](t *testing.T, driver *entpgx.Driver, sql string) T {
	t.Helper()
	var value T
	if err := driver.Pool().QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
