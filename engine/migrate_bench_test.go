package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
)

// benched is the number of instances that each round of a benchmark of plans changes.
const benched = 100_000

// BenchmarkEagerMigration moves 100,000 instances to another version, and for comparison retries as
// many in bulk: docs/performance.md has the figures. The rates are of Apply, without the dry run
// and the plan.
//
//	bin/withpg go test ./engine -run '^$' -bench EagerMigration -benchtime 3x
func BenchmarkEagerMigration(b *testing.B) {
	pool := pgtest.Pool(b, pgtest.Migrated(b))
	config := engine.Config{Pool: pool}
	inTwo(&config)
	eng, err := engine.New(config)
	require.NoError(b, err)
	both := map[string]time.Duration{}
	for b.Loop() { // in turn, so that what else the machine does concerns both
		both["migrated"] += migrateMany(b, eng, pool)
		both["retried"] += retryMany(b, eng, pool)
	}
	for name, took := range both {
		b.ReportMetric(float64(benched*b.N)/took.Seconds(), name+"/s")
	}
	b.ReportMetric(both["retried"].Seconds()/both["migrated"].Seconds(), "migrated:retried")
}

func migrateMany(b *testing.B, eng *engine.Engine, pool *pgxpool.Pool) time.Duration {
	b.Helper()
	rows(b, pool, `runnable`, `now() + interval '1 day'`, `NULL`)
	plan, err := eng.Admin().Migrate(b.Context(), faresV1.Name(), 1, 2)
	require.NoError(b, err)
	began := time.Now()
	done, err := plan.Apply(b.Context())
	took := time.Since(began)
	require.NoError(b, err)
	require.EqualValues(b, benched, done.Moved)
	return took
}

func retryMany(b *testing.B, eng *engine.Engine, pool *pgxpool.Pool) time.Duration {
	b.Helper()
	rows(b, pool, `failed`, `now()`, `now()`)
	plan, err := eng.Admin().Bulk(b.Context(), engine.VerbRetry, fsm.Filter{Machine: faresV1.Name()})
	require.NoError(b, err)
	began := time.Now()
	done, err := plan.Apply(b.Context())
	took := time.Since(began)
	require.NoError(b, err)
	require.EqualValues(b, benched, done.Changed)
	return took
}

// rows makes instances of version 1.
func rows(b *testing.B, pool *pgxpool.Pool, status, due, finished string) {
	b.Helper()
	for _, sql := range []string{
		`TRUNCATE gendurable.gen_durable, gendurable.signals, gendurable.history`,
		`INSERT INTO gendurable.gen_durable (fsm, fsm_version, step, state, status, eligible_at, finished_at, failure)
			SELECT 'fares', 1, 'start', to_jsonb(n), '` + status + `', ` + due + `, ` + finished + `, CASE WHEN '` + status + `' = 'failed' THEN 'error' END
			FROM generate_series(1, 100000) n`,
		`VACUUM ANALYZE gendurable.gen_durable`, `CHECKPOINT`,
	} {
		_, err := pool.Exec(context.Background(), sql)
		require.NoError(b, err)
	}
}
