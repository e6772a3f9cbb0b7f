package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// bloatTimes is by how much an index may exceed the size that its rows need, before it counts as
// bloated.
const bloatTimes = 4

// turnover is the setting that the migrations make, since tables of queues need it.
const turnover = "autovacuum_vacuum_scale_factor=0.02"

const autovacuumSQL = `SELECT current_setting('autovacuum'), current_setting('track_counts'),
  ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.oid = ANY(t.oids) AND 'autovacuum_enabled=false' = ANY(c.reloptions)),
  ARRAY(SELECT c.relname::text FROM pg_class c WHERE c.oid = ANY(t.oids) AND ($2 = ANY(c.reloptions)) IS NOT TRUE)
FROM (SELECT ARRAY(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname IN ('gen_durable', 'signals')) AS oids) t`

func (p *patient) autovacuum(ctx context.Context) (finding, error) {
	var on, counts string
	var off, untuned []string
	if err := p.pool.QueryRow(ctx, autovacuumSQL, p.schema, turnover).Scan(&on, &counts, &off, &untuned); err != nil {
		return finding{}, err
	}
	f := ok("autovacuum %s, with the tables' own settings", on)
	switch {
	case on == "off" || counts == "off":
		f.Seen = fmt.Sprintf("autovacuum %s, track_counts %s", on, counts)
		return f.or(gradeFail, "turn both on: the tables fill up with dead rows"), nil
	case len(off) > 0:
		f.Seen = "autovacuum is off for " + strings.Join(off, ", ")
		return f.or(gradeFail, "ALTER TABLE … RESET (autovacuum_enabled)"), nil
	case len(untuned) > 0:
		f.Seen = "other settings of autovacuum than the migrations made: " + strings.Join(untuned, ", ")
		return f.or(gradeWarn, "they are for tables whose rows all change: ALTER TABLE … SET ("+turnover+"), or know why not"), nil
	}
	return f, nil
}

const deadRowsSQL = `SELECT relname::text, n_live_tup, n_dead_tup, coalesce(extract(epoch FROM
  clock_timestamp() - greatest(last_autovacuum, last_vacuum))::bigint, -1)
FROM pg_stat_user_tables WHERE schemaname = $1 AND relname IN ('gen_durable', 'signals') ORDER BY relname`

func (p *patient) deadRows(ctx context.Context) (finding, error) {
	rows, err := p.pool.Query(ctx, deadRowsSQL, p.schema)
	if err != nil {
		return finding{}, err
	}
	worst := gradeOK
	var seen []string
	var name string
	var live, dead, vacuumed int64
	_, err = pgx.ForEachRow(rows, []any{&name, &live, &dead, &vacuumed}, func() error {
		when := "never vacuumed"
		if vacuumed >= 0 {
			when = "vacuumed " + span(seconds(vacuumed)) + " ago"
		}
		seen = append(seen, fmt.Sprintf("%s: %d dead rows beside %d, %s", name, dead, live, when))
		switch {
		case dead > p.limits.deadFail && dead > 2*live:
			worst = gradeFail
		case dead > p.limits.deadWarn && dead > live/2 && worst == gradeOK:
			worst = gradeWarn
		}
		return nil
	})
	f := ok("%s", strings.Join(seen, "; "))
	if worst == gradeOK {
		return f, err
	}
	return f.or(worst, "autovacuum does not keep up: see what \"horizon\" says, else give it more (autovacuum_max_workers, autovacuum_vacuum_cost_limit)"), err
}

// indexesSQL compares the sizes of the indexes with the size that their rows need, which it
// estimates from the planner's statistics.
const indexesSQL = `SELECT i.relname::text, x.indisvalid, pg_relation_size(i.oid),
  (greatest(i.reltuples, 0)::float8 * (24 + w.width) / 0.7)::bigint, m.amname = 'btree'
FROM pg_index x
JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace
JOIN pg_am m ON m.oid = i.relam
CROSS JOIN LATERAL (
  SELECT coalesce(sum(coalesce(s.avg_width, 8)), 8) AS width FROM pg_attribute a
  LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = t.relname AND s.attname = a.attname
  WHERE a.attrelid = i.oid) w
WHERE n.nspname = $1 AND t.relname IN ('gen_durable', 'signals') ORDER BY 3 DESC, 1`

func (p *patient) indexes(ctx context.Context) (finding, error) {
	rows, err := p.pool.Query(ctx, indexesSQL, p.schema)
	if err != nil {
		return finding{}, err
	}
	var invalid, bloated []string
	var total int64
	var name string
	var valid, btree bool
	var size, needed int64
	_, err = pgx.ForEachRow(rows, []any{&name, &valid, &size, &needed, &btree}, func() error {
		total += size
		if !valid {
			invalid = append(invalid, name)
		}
		if btree && size > p.limits.bloatLeast && size > bloatTimes*needed {
			bloated = append(bloated, fmt.Sprintf("%s (%s, needs some %s)", name, inBytes(size), inBytes(needed)))
		}
		return nil
	})
	f := ok("%s of indexes, none bloated by estimate", inBytes(total))
	switch {
	case err != nil:
	case len(invalid) > 0:
		f.Seen = "invalid: " + strings.Join(invalid, ", ")
		return f.or(gradeFail, "a build was cut off: REINDEX INDEX CONCURRENTLY, or gendurable migrate up if one is pending"), nil
	case len(bloated) > 0:
		f.Seen = "bloated by estimate: " + strings.Join(slices.Sorted(slices.Values(bloated)), ", ")
		return f.or(gradeWarn, "once nothing keeps dead rows alive any more: REINDEX INDEX CONCURRENTLY"), nil
	}
	return f, err
}

func inBytes(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d kB", n>>10)
	}
	return fmt.Sprintf("%d MB", n>>20)
}
