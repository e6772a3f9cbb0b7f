package entpgx_test

import (
	stdsql "database/sql"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// What a role has set for the text form of times changes nothing that ent reads, in any mode, on a
// pool, in ent's own transaction and in a host's.
func TestStylesOfTheRole(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	for _, style := range []string{"German, DMY", "SQL, DMY", "SQL, MDY", "Postgres, DMY", "ISO, MDY"} {
		for _, mode := range modes {
			t.Run(style+"/"+mode.String(), func(t *testing.T) {
				t.Parallel()
				name := style + " " + mode.String()
				driver := driverIn(t, database, name, `CREATE TABLE thing (id int, at timestamptz, local timestamp, day date, times timestamptz[]);
					INSERT INTO thing SELECT n, '2024-02-03 04:05:06.789Z', '2024-02-03 04:05:06', '2024-02-03', '{2024-02-03 04:05:06Z}'
					FROM generate_series(1, 3) n`, mode, func(c *pgxpool.Config) {
					c.ConnConfig.RuntimeParams["datestyle"] = style
					c.ConnConfig.RuntimeParams["intervalstyle"] = "sql_standard"
					c.ConnConfig.RuntimeParams["timezone"] = "Europe/Lisbon"
				})
				read := func(on dialect.ExecQuerier) {
					t.Helper()
					query, args := builder.Select("at", "local", "day").From(entsql.Table("thing")).Where(entsql.GT("id", 0)).Query()
					var found entsql.Rows
					require.NoError(t, on.Query(t.Context(), query, args, &found))
					n := 0
					for found.Next() {
						var at, local, day stdsql.NullTime
						require.NoError(t, found.Scan(&at, &local, &day))
						require.True(t, at.Time.Equal(time.Date(2024, 2, 3, 4, 5, 6, 789e6, time.UTC)), at)
						require.True(t, local.Time.Equal(time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)), local)
						require.True(t, day.Time.Equal(time.Date(2024, 2, 3, 0, 0, 0, 0, time.UTC)), day)
						n++
					}
					require.NoError(t, found.Err())
					require.NoError(t, found.Close())
					require.Equal(t, 3, n)
				}
				for range 3 {
					read(driver)
				}
				tx, err := driver.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				read(tx)
				require.NoError(t, tx.Exec(t.Context(), `INSERT INTO thing (id) VALUES (-1)`, []any{}, nil))
				read(tx)
				require.NoError(t, tx.Commit())

				host, err := driver.Pool().Begin(t.Context())
				require.NoError(t, err)
				read(entpgx.Within(host))
				var now string
				require.NoError(t, host.QueryRow(t.Context(), `SHOW datestyle`).Scan(&now))
				require.Equal(t, style, now, "the host's transaction has its own again")
				require.NoError(t, host.Rollback(t.Context()))

				query, args := `INSERT INTO thing (id) VALUES ($1) RETURNING id`, []any{7}
				var found entsql.Rows
				require.NoError(t, driver.Query(t.Context(), query, args, &found))
				require.NoError(t, found.Close(), "not read to its end")
				require.EqualValues(t, 2, scalar[int64](t, driver, `SELECT count(*) FROM thing WHERE id IN (-1, 7)`), "committed")
				require.Error(t, driver.Query(t.Context(), `SELECT 1 / 0`, []any{}, &found))
				require.EqualValues(t, 0, driver.Pool().Stat().AcquiredConns(), "all are back in the pool")
			})
		}
	}
}
