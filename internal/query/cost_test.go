package query_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pgtest"
	"github.com/gendurable/gendurable/internal/query"
	"github.com/gendurable/gendurable/internal/store"
)

// The reads through ent may cost 1.3 × what the same statements cost that are written and scanned
// by hand. The figures are in docs/decisions.md.
//
//	bin/withpg go test -run '^$' -bench Reads -benchmem ./internal/query
func BenchmarkReads(b *testing.B) {
	pool := pgtest.Pool(b, pgtest.Migrated(b))
	r, hand := query.New(store.New(entpgx.New(pool), "gendurable")), byHand{entpgx.New(pool)}
	require.NoError(b, fill(b.Context(), pool, 2000))
	require.Equal(b, instancesOf(b, r, 100), hand.list(b, 100), "both read the same")
	b.Run("get/ent", func(b *testing.B) {
		defer reportCPU(b)()
		for b.Loop() {
			_, err := r.Get(b.Context(), store.Address{ID: 7})
			require.NoError(b, err)
		}
	})
	b.Run("get/hand", func(b *testing.B) {
		defer reportCPU(b)()
		for b.Loop() {
			require.Len(b, hand.read(b, handGet, 7), 1)
		}
	})
	for _, n := range []int{50, 1000} {
		b.Run(fmt.Sprintf("list of %d/ent", n), func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				require.Len(b, instancesOf(b, r, n), n)
			}
		})
		b.Run(fmt.Sprintf("list of %d/hand", n), func(b *testing.B) {
			defer reportCPU(b)()
			for b.Loop() {
				require.Len(b, hand.list(b, n), n)
			}
		})
	}
}

// reportCPU reports the processor time of this process, which is what a client costs. The time that
// passes depends on what else the machine does.
func reportCPU(b *testing.B) func() {
	b.Helper()
	spent := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := spent()
	return func() { b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op") }
}

func fill(ctx context.Context, pool *pgxpool.Pool, n int) error {
	_, err := pool.Exec(ctx, `INSERT INTO gendurable.gen_durable (fsm, step, state, correlation_key, labels)
		SELECT 'orders', 'pay', jsonb_build_object('order', n, 'text', repeat('x', 300)), 'order:' || n, '{"tenant": "acme"}'
		FROM generate_series(1, $1::int) n`, n)
	return err
}

func instancesOf(b *testing.B, r *query.Reader, n int) []fsm.RawInstance {
	b.Helper()
	got, err := r.List(b.Context(), query.ListParams{Filter: store.Filter{Machine: "orders"}, Limit: n, Visit: 10_000})
	require.NoError(b, err)
	return got.Instances
}

// byHand sends the same queries as text, between the same settings, and scans them with pgx.
type byHand struct{ db *entpgx.Driver }

const (
	handColumns = `g.id, g.fsm, g.fsm_version, g.step, g.queue, g.priority, g.status::text, g.state::text, g.result::text, g.attempt,
  g.crashes, g.visit, g.failure, g.last_error, g.correlation_key, g.partition_key, g.paused, g.eligible_at, g.inserted_at, g.finished_at, g.deadline,
  g.labels::text`
	handGet  = `SELECT ` + handColumns + ` FROM gendurable.gen_durable g WHERE g.id = $1::bigint`
	handList = `SELECT i.* FROM (
  SELECT g.id, coalesce($1::text IS NULL OR g.fsm = $1, false) AS fits, row_number() OVER (ORDER BY g.id DESC) AS visited
  FROM gendurable.gen_durable g WHERE g.id < $2::bigint ORDER BY g.id DESC LIMIT $3::int) w
CROSS JOIN LATERAL (SELECT ` + handColumns + ` FROM gendurable.gen_durable g WHERE g.id = w.id OFFSET 0) i
WHERE w.fits OR w.visited = $3
ORDER BY w.id DESC LIMIT $4::int`
	handSettings = `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
  set_config('idle_in_transaction_session_timeout', '10s', true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
  set_config('datestyle', 'ISO', true)`
)

func (h byHand) list(b *testing.B, n int) []fsm.RawInstance {
	b.Helper()
	return h.read(b, handList, "orders", int64(math.MaxInt64), 10_000, n+1)[:n]
}

func (h byHand) read(b *testing.B, text string, args ...any) (all []fsm.RawInstance) {
	b.Helper()
	require.NoError(b, h.db.Pipeline(b.Context(), entpgx.Stmt{Name: "begin", SQL: `BEGIN ISOLATION LEVEL READ COMMITTED`},
		entpgx.Stmt{Name: "settings", SQL: handSettings, Args: []any{"500ms", "60s"}},
		entpgx.Stmt{Name: "read", SQL: text, Args: args, Read: func(rows pgx.Rows) error {
			for rows.Next() {
				var i fsm.RawInstance
				var state, result, failure, lastError, correlation, partition *string
				var finished, deadline *time.Time
				var labels []byte
				if err := rows.Scan(&i.ID, &i.Machine, &i.Version, &i.Step, &i.Queue, &i.Priority, &i.Status, &state, &result, &i.Attempt,
					&i.Crashes, &i.Visit, &failure, &lastError, &correlation, &partition, &i.Paused, &i.EligibleAt, &i.InsertedAt, &finished,
					&deadline, &labels); err != nil {
					return err
				}
				i.State, i.Key = json.RawMessage(*state), fsm.Key(*correlation)
				if err := json.Unmarshal(labels, &i.Labels); err != nil {
					return err
				}
				all = append(all, i)
			}
			return rows.Err()
		}}, entpgx.Stmt{Name: "commit", SQL: `COMMIT`}))
	return all
}
