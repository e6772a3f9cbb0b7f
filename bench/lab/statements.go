package lab

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// withStatements are the settings with which the server records its statements, which costs some
// speed.
var withStatements = [][2]string{
	{"shared_preload_libraries", "pg_stat_statements"}, {"pg_stat_statements.track_planning", "on"}, {"track_io_timing", "on"},
}

// Account says where the server's time went since its last call: the costliest statements of each
// database.
func (l *Lab) Account(ctx context.Context) (string, error) {
	if _, err := l.admin.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		return "", err
	}
	rows, err := l.admin.Query(ctx, `SELECT replace(d.datname, 'gendurable_bench_', ''), s.calls, s.rows, s.total_exec_time, s.total_plan_time,
			s.wal_bytes::float8, (s.shared_blks_hit + s.shared_blks_read)::float8, regexp_replace(s.query, '\s+', ' ', 'g')
		FROM (SELECT *, row_number() OVER (PARTITION BY dbid ORDER BY total_exec_time + total_plan_time DESC) AS n
			FROM pg_stat_statements WHERE query !~* '(create|alter|drop|truncate|vacuum) ') s
		JOIN pg_database d ON d.oid = s.dbid AND d.datname LIKE 'gendurable_bench_%'
		WHERE s.n <= 8 ORDER BY d.datname, s.n`)
	if err != nil {
		return "", err
	}
	var (
		b                             strings.Builder
		database, query               string
		calls, affected               int64
		executing, planning, wal, hit float64
	)
	fmt.Fprintf(&b, "  %-10s %8s %9s %9s %8s %8s %8s  %s\n", "", "calls", "rows", "ms", "plan ms", "WAL B/r", "buf/r", "statement")
	_, err = pgx.ForEachRow(rows, []any{&database, &calls, &affected, &executing, &planning, &wal, &hit, &query}, func() error {
		each := float64(max(affected, 1))
		fmt.Fprintf(&b, "  %-10s %8d %9d %9.0f %8.0f %8.0f %8.1f  %.90s\n", database, calls, affected, executing, planning, wal/each, hit/each, query)
		return nil
	})
	if err != nil {
		return "", err
	}
	_, err = l.admin.Exec(ctx, "SELECT pg_stat_statements_reset()")
	return b.String(), err
}
