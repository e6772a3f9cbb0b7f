package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Clock is the clock of one migrated database, which a test sets ahead. All that the engine asks of
// Postgres' clock goes by it, the history's days as well, since statements, defaults and functions
// name the clocks without a schema. Only what Postgres keeps itself, such as when the server has
// started, does not.
type Clock struct{ conn *pgx.Conn }

// clockSQL makes clocks that come before Postgres' own.
const clockSQL = `CREATE SCHEMA clock;
CREATE TABLE clock.ahead (by interval NOT NULL);
INSERT INTO clock.ahead VALUES ('0');
CREATE FUNCTION clock.now() RETURNS timestamptz STABLE LANGUAGE plpgsql AS 'BEGIN RETURN pg_catalog.now() + (SELECT a.by FROM clock.ahead a); END';
CREATE FUNCTION clock.transaction_timestamp() RETURNS timestamptz STABLE LANGUAGE plpgsql AS 'BEGIN RETURN clock.now(); END';
CREATE FUNCTION clock.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE plpgsql AS
  'BEGIN RETURN pg_catalog.statement_timestamp() + (SELECT a.by FROM clock.ahead a); END';
CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE plpgsql AS
  'BEGIN RETURN pg_catalog.clock_timestamp() + (SELECT a.by FROM clock.ahead a); END';
DO $$ DECLARE one record; BEGIN
  FOR one IN SELECT d.adrelid::regclass AS "table", a.attname AS "column" FROM pg_attrdef d
    JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum JOIN pg_class c ON c.oid = d.adrelid
    WHERE c.relnamespace = 'gendurable'::regnamespace AND NOT c.relispartition AND pg_get_expr(d.adbin, d.adrelid) = 'now()'
  LOOP EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT clock.now()', one."table", one."column"); END LOOP;
  FOR one IN SELECT p.oid::regprocedure AS "function" FROM pg_proc p WHERE p.pronamespace = 'gendurable'::regnamespace AND p.prolang <> (SELECT l.oid FROM pg_language l WHERE l.lanname = 'c')
  LOOP EXECUTE format('ALTER FUNCTION %s SET search_path = gendurable, clock, pg_catalog', one."function"); END LOOP;
END $$`

// NewClock returns the clock of a database that [Migrated] has made. Until the first Advance it
// shows what the server's does. Sessions that are to see it connect as [Clock.Configure] says.
func NewClock(t testing.TB, url string) *Clock {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	_, err = conn.Exec(t.Context(), clockSQL)
	require.NoError(t, err)
	return &Clock{conn}
}

// Configure lets the connections of a pool see the clock.
func (*Clock) Configure(c *pgxpool.Config) {
	c.ConnConfig.RuntimeParams["search_path"] = "clock, pg_catalog, public"
}

// Advance sets the clock ahead.
func (c *Clock) Advance(ctx context.Context, by time.Duration) error {
	_, err := c.conn.Exec(ctx, `UPDATE clock.ahead SET by = by + $1::bigint * interval '1 microsecond'`, by.Microseconds())
	return err
}

// Now returns what the clock shows.
func (c *Clock) Now(ctx context.Context) (now time.Time, err error) {
	err = c.conn.QueryRow(ctx, `SELECT clock.clock_timestamp()`).Scan(&now)
	return now.UTC(), err
}
