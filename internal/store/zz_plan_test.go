package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/store"
)

func TestZZPlan(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	conn, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for _, big := range []bool{false, true} {
		if big {
			b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, status, finished_at) SELECT 'm','s','done', now() - n * interval '1 s' FROM generate_series(1,300000) n`)
			b.exec(`INSERT INTO gendurable.gen_durable (fsm, step, parent_id, parent_round, status, finished_at) SELECT 'm','s', 1 + n % 100, 1, 'done', now() - n * interval '1 s' FROM generate_series(1,100000) n`)
			b.exec(`INSERT INTO gendurable.signals (target_id, name, dedup_key, consumed_at) SELECT 1 + n % 1000, 'x', n, CASE WHEN n % 2 = 0 THEN now() END FROM generate_series(1,200000) n`)
			b.exec(`ANALYZE gendurable.gen_durable`)
			b.exec(`ANALYZE gendurable.signals`)
		}
		_, err = conn.Exec(ctx, `SET enable_seqscan=off; SET plan_cache_mode=force_generic_plan; SET jit=off; SET gendurable.target='5'; DEALLOCATE ALL`)
		require.NoError(t, err)
		for i, s := range store.PlanStatements {
			sql := strings.ReplaceAll(s.SQL, "{s}", "gendurable")
			_, err := conn.Exec(ctx, fmt.Sprintf("PREPARE p%d AS %s", i, sql))
			require.NoError(t, err, s.SQL)
			rows, err := conn.Query(ctx, fmt.Sprintf("EXPLAIN (%s COSTS OFF) EXECUTE p%d(%s)", map[bool]string{true: "ANALYZE, BUFFERS, TIMING OFF,"}[big], i, s.Args))
			require.NoError(t, err)
			fmt.Println("=====", big, s.Name)
			for rows.Next() {
				var l string
				require.NoError(t, rows.Scan(&l))
				fmt.Println(l)
			}
			require.NoError(t, rows.Err())
		}
	}
}
