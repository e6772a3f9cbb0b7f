package main

import "context"

// restWarn is the size in bytes from which on history_rest counts as filling up. Some rows are
// there after an installation, from before the first process made the days.
const restWarn = 1 << 20

// historySQL reads how the history's partitions stand: how many there are for days to come, the
// size of the one for days without, of all, and how many tables wait to become partitions. It reads
// the catalog only.
const historySQL = `SELECT count(*) FILTER (WHERE c.relname ~ '^history_[0-9]{8}$'
    AND c.relname > 'history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')),
  coalesce(sum(pg_relation_size(c.oid)) FILTER (WHERE c.relname = 'history_rest'), 0)::bigint,
  coalesce(sum(pg_relation_size(c.oid)), 0)::bigint,
  (SELECT count(*) FROM pg_class a WHERE a.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
    AND a.relname ~ '^history_rest_[0-9]{14}$' AND NOT a.relispartition)
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class h ON h.oid = i.inhparent JOIN pg_namespace n ON n.oid = h.relnamespace
WHERE n.nspname = $1 AND h.relname = 'history'`

// stuckSQL counts rows that are in front of the partition of their day, which begins behind one
// that could not be moved there from history_rest. A day whose beginning was set aside is another
// case. It looks at those hours only. $1 schema
const stuckSQL = `WITH d AS MATERIALIZED (SELECT c.relname, to_date(substr(c.relname, 9), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC' AS day,
    substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \(''([^'']+)''\)')::timestamptz AS since
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname ~ '^history_[0-9]{8}$' AND c.relispartition),
late AS MATERIALIZED (SELECT d.* FROM d WHERE d.since > d.day AND NOT EXISTS (SELECT FROM pg_class a JOIN pg_namespace n ON n.oid = a.relnamespace
  WHERE n.nspname = $1 AND a.relname LIKE replace(d.relname, 'history_', 'history\_rest\_') || '%'))
SELECT coalesce(sum(x.n), 0) FROM late CROSS JOIN LATERAL (SELECT count(*) AS n
  FROM (SELECT FROM {s}.history h WHERE h.at >= late.day AND h.at < late.since LIMIT 1000) h) x`

// history looks whether the history's days are made ahead.
func (p *patient) history(ctx context.Context) (finding, error) {
	var ahead, aside int
	var rest, all int64
	if err := p.pool.QueryRow(ctx, historySQL, p.schema).Scan(&ahead, &rest, &all, &aside); err != nil {
		return finding{}, err
	}
	const do = "a process with queues and without NoGC makes them, once an hour, and drops old ones: is there one, " +
		"and may it EXECUTE gen_durable_roll_history?"
	switch {
	case aside > 0:
		return ok("tables of history that were set aside, and are no partitions yet: %d", aside).or(gradeWarn, do), nil
	case rest > restWarn:
		f := ok("%s of history are in history_rest, which is for days without a partition", inBytes(rest))
		return f.or(gradeWarn, do+" It brings what is there into partitions."), nil
	case ahead == 0 && all > 0:
		return ok("the history has no partition for tomorrow").or(gradeWarn, do), nil
	}
	if rest > 0 {
		var stuck int
		if err := p.pool.QueryRow(ctx, within(p.schema, stuckSQL), p.schema).Scan(&stuck); err != nil {
			return finding{}, err
		}
		if stuck > 0 {
			return ok("rows of history that could not be moved from history_rest to the partition of their day: %d", stuck).or(gradeWarn,
				"the log of the processes that make the days says what refuses them: is there a trigger or a check of yours on history? "+
					"They are found where they are, and go with Config.RetainHistory"), nil
		}
	}
	return ok("%s of history, partitions for %d days ahead", inBytes(all), ahead), nil
}
