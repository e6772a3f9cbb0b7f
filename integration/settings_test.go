package integration

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/tier"
)

// runEverything makes an engine do everything that it can, and requires that nothing goes wrong.
func runEverything(t *testing.T, c engine.Config, m *fsm.Machine[int, int], during func()) {
	t.Helper()
	log := newJournal(t)
	c.Logger = log.logger()
	eng := start(t, c)
	var specs []fsm.Spec
	for n := range tier.Pick(20, 60) {
		specs = append(specs, m.New(n).PartitionKey(strconv.Itoa(n%10)).Key(fsm.Key(fmt.Sprint("every ", n))))
	}
	ids := insertAll(t, eng, specs)
	during()
	for _, id := range ids {
		i := ended(t, eng, id)
		require.JSONEq(t, "3", string(i.Result), i.LastError)
		require.Zero(t, i.Attempt+i.Crashes)
	}
	readEverything(t, eng, ids)
	require.Empty(t, log.lines("level=ERROR"))
	log.isShort(t)
}

// readEverything reads times in every way there is.
func readEverything(t *testing.T, eng *engine.Engine, ids []fsm.ID) {
	t.Helper()
	fresh := func(at time.Time) { t.Helper(); require.WithinDuration(t, time.Now(), at, 10*time.Minute) }
	causes, err := eng.Admin().Why(t.Context(), ids[0])
	require.NoError(t, err)
	fresh(causes[0].Since)
	workers, err := eng.Admin().Workers(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, workers)
	fresh(workers[0].Beat)
	page, err := eng.List(t.Context(), engine.Query{Limit: 10})
	require.NoError(t, err)
	fresh(page.Instances[0].InsertedAt)
	row, err := eng.Ent().Instance.Get(t.Context(), ids[0])
	require.NoError(t, err)
	fresh(*row.FinishedAt)
}

// The settings of a role or a database may be meant for other programs, and hostile to short
// transactions with locks.
func TestHostileSettingsOfTheDatabaseChangeNothing(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"default_transaction_isolation":       "serializable",
		"statement_timeout":                   "500ms",
		"lock_timeout":                        "1ms",
		"idle_in_transaction_session_timeout": "100ms",
		"search_path":                         "nowhere",
		"plan_cache_mode":                     "force_custom_plan",
		"DateStyle":                           "German",
		"IntervalStyle":                       "sql_standard",
		"TimeZone":                            "Asia/Kathmandu",
		"bytea_output":                        "escape",
		"standard_conforming_strings":         "on",
		"default_transaction_deferrable":      "on",
		"enable_indexscan":                    "off",
	}
	// In make test, several of them are set together.
	groups := slices.Collect(slices.Chunk(slices.Sorted(maps.Keys(settings)), tier.Pick(4, 1)))
	for _, group := range groups {
		t.Run(strings.Join(group, ", "), func(t *testing.T) {
			t.Parallel()
			m, defs := everything()
			database := pgtest.Migrated(t)
			name := database[strings.LastIndex(database, "/")+1 : strings.Index(database, "?")]
			setUp := pgtest.Pool(t, database)
			for _, setting := range group {
				execute(t, setUp, fmt.Sprintf("ALTER DATABASE %s SET %s = %s", pgx.Identifier{name}.Sanitize(), setting, "'"+settings[setting]+"'"))
			}
			setUp.Close()
			runEverything(t, configOn(t, database, defs...), m, func() {})
		})
	}
}

func TestEveryExecModeOfPgx(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			m, defs := everything()
			database := pgtest.Migrated(t)
			c := configOn(t, database, defs...)
			c.Pool = pgtest.Pool(t, database, func(p *pgxpool.Config) { p.ConnConfig.DefaultQueryExecMode = mode })
			runEverything(t, c, m, func() {})
		})
	}
}

// The text form of times that a role has set is of no account, in whatever form pgx asks for
// results.
func TestEveryExecModeUnderAForeignDateStyle(t *testing.T) {
	t.Parallel()
	for i, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
		pgx.QueryExecModeSimpleProtocol,
	} {
		for k, style := range []string{"German", "SQL, DMY", "Postgres, MDY"} {
			if !tier.Long() && k != i%3 {
				continue // one style for each mode, and each style
			}
			t.Run(mode.String()+"/"+style, func(t *testing.T) {
				t.Parallel()
				m, defs := everything()
				database := pgtest.Migrated(t)
				c := configOn(t, database, defs...)
				c.Pool = pgtest.Pool(t, database, func(p *pgxpool.Config) {
					p.ConnConfig.DefaultQueryExecMode = mode
					p.ConnConfig.RuntimeParams["datestyle"] = style
				})
				runEverything(t, c, m, func() {})
			})
		}
	}
}

// Statements that were prepared before a migration must not fail after it, nor statements that a
// proxy has lost.
func TestTheTableChangesUnderARunningEngine(t *testing.T) {
	t.Parallel()
	m, defs := everything()
	database := pgtest.Migrated(t)
	outside := pgtest.Pool(t, database)
	runEverything(t, configOn(t, database, defs...), m, func() {
		for n := range 5 {
			execute(t, outside, fmt.Sprintf(`ALTER TABLE gendurable.gen_durable ADD COLUMN note_%d text DEFAULT 'host'`, n))
			execute(t, outside, fmt.Sprintf(`ALTER TABLE gendurable.signals ADD COLUMN note_%d text`, n))
			execute(t, outside, `ANALYZE`)
		}
	})
}
