package entpgx_test

import (
	"context"
	stdsql "database/sql"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
)

// everyType begins as a query of ent's builders does: see ofBuilder.
const everyType = `WITH q AS (SELECT 7::bigint, -7::int, 3::smallint, 'ü'::text, ''::text, true, false, '2026-01-02 03:04:05.678901+02'::timestamptz,
  '{"a": 1}'::jsonb, '[1]'::json, '\x00ff'::bytea, '{a,"b c",NULL}'::text[], 'c4ca4238-a0b9-4382-8dcc-509a6f75849b'::uuid, 1.5::float8, 2.50::numeric,
  NULL::bigint, NULL::text, NULL::timestamptz, NULL::jsonb, NULL::boolean FROM generate_series(1, 2)) TABLE q`

// places are where ent scans everyType: into the fields of an entity, of a struct, and what it does
// not know.
func places(kind string) []any {
	switch kind {
	case "entity":
		return []any{
			new(stdsql.NullInt64), new(stdsql.NullInt64), new(stdsql.NullInt64), new(stdsql.NullString), new(stdsql.NullString),
			new(stdsql.NullBool), new(stdsql.NullBool), new(stdsql.NullTime), new([]byte), new([]byte), new([]byte), new(stdsql.NullString),
			new(uuid.UUID), new(stdsql.NullFloat64), new(stdsql.NullString), new(stdsql.NullInt64), new(stdsql.NullString), new(stdsql.NullTime),
			new([]byte), new(stdsql.NullBool),
		}
	case "struct":
		return []any{
			new(*int64), new(*int), new(*int), new(*string), new(*string), new(*bool), new(*bool), new(*time.Time), new([]byte), new([]byte),
			new([]byte), new([]*string), new(*uuid.UUID), new(*float64), new(*string), new(*int64), new(*string), new(*time.Time), new([]byte),
			new(*bool),
		}
	}
	out := make([]any, 20)
	for i := range out {
		out[i] = new(any)
	}
	return out
}

// A result that was read before is scanned as one that is read meanwhile, in every exec mode.
func TestEnclosedScansAsTheDriver(t *testing.T) {
	t.Parallel()
	inModes(t, "", func(t *testing.T, driver *entpgx.Driver) {
		enclosed := driver.Enclose([]entpgx.Stmt{{Name: "begin", SQL: `BEGIN`}}, []entpgx.Stmt{{Name: "commit", SQL: `COMMIT`}})
		for _, kind := range []string{"entity", "struct"} {
			var got [2][]any
			for i, from := range []dialect.Driver{driver, enclosed} {
				rows := &entsql.Rows{}
				require.NoError(t, from.Query(t.Context(), everyType, []any{}, rows))
				t.Cleanup(func() { _ = rows.Close() }) // else its connection is never free
				for rows.Next() {
					into := places(kind)
					require.NoError(t, rows.Scan(into...), "%s: %T", kind, from)
					got[i] = append(got[i], into)
				}
				require.NoError(t, rows.Err())
				require.NoError(t, rows.Close())
			}
			require.Len(t, got[0], 2)
			require.Equal(t, len(got[0]), len(got[1]))
			for i := range got[0] {
				require.Equal(t, utc(got[0][i].([]any)), utc(got[1][i].([]any)), kind)
			}
		}
		rows := &entsql.Rows{}
		require.NoError(t, enclosed.Query(t.Context(), everyType, []any{}, rows))
		require.True(t, rows.Next())
		into := places("any")
		require.NoError(t, rows.Scan(into...))
		require.Equal(t, "ü", *into[3].(*any))
		require.Nil(t, *into[15].(*any))
		require.ErrorContains(t, rows.Scan(new(int)), "20 columns into 1")
	})
}

// utc makes times comparable.
func utc(places []any) []any {
	for _, place := range places {
		switch place := place.(type) {
		case *stdsql.NullTime:
			place.Time = place.Time.UTC()
		case **time.Time:
			if *place != nil {
				**place = (*place).UTC()
			}
		}
	}
	return places
}

// The statements around a query hold for it alone, and errors are a pipeline's. The connection is
// free as soon as the query has returned.
func TestEnclosedQueries(t *testing.T) {
	t.Parallel()
	inModes(t, "", func(t *testing.T, driver *entpgx.Driver) {
		enclosed := driver.Enclose([]entpgx.Stmt{{Name: "begin", SQL: `BEGIN`}, {Name: "settings", SQL: `SELECT set_config('lock_timeout', '77ms', true)`}},
			[]entpgx.Stmt{{Name: "commit", SQL: `COMMIT`}})
		ask := func(from dialect.Driver, text string, args ...any) (string, error) {
			rows := &entsql.Rows{}
			if err := from.Query(t.Context(), text, args, rows); err != nil {
				return "", err
			}
			require.Zero(t, driver.Pool().Stat().AcquiredConns())
			return entsql.ScanString(rows)
		}
		for range 3 { // more often than there are connections, without a Close
			rows := &entsql.Rows{}
			require.NoError(t, enclosed.Query(t.Context(), `SELECT 1`, []any{}, rows))
		}
		got, err := ask(enclosed, `SELECT current_setting('lock_timeout') || $1::text`, "!")
		require.NoError(t, err)
		require.Equal(t, "77ms!", got)
		_, err = ask(enclosed, `SELECT 1 / $1::int`, 0)
		var failed *entpgx.StmtError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "query", failed.Name)
		got, err = ask(enclosed, `SELECT 'on'`)
		require.NoError(t, err)
		require.Equal(t, "on", got)
		got, err = ask(enclosed.Rewrite(func(before []entpgx.Stmt, _ string) ([]entpgx.Stmt, string) {
			return before[:1], `SELECT current_setting('lock_timeout')`
		}), `SELECT 'on'`)
		require.NoError(t, err)
		require.NotEqual(t, "77ms", got, "the query goes without the settings")

		require.Error(t, enclosed.Exec(t.Context(), `SELECT 1`, []any{}, nil))
		_, err = enclosed.Tx(context.Background())
		require.Error(t, err)
		require.Equal(t, dialect.Postgres, enclosed.Dialect())
		require.NoError(t, enclosed.Close())
	})
}
