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
	return ok("%s of history, partitions for %d days ahead", inBytes(all), ahead), nil
}
