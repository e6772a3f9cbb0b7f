package main

import "context"

// restWarn is the size in bytes from which on history_rest counts as filling up. Some rows are
// there after an installation, from before the first process made the days.
const restWarn = 1 << 20

// historySQL reads how the history's partitions stand: how many there are for days to come, the
// size of the one for days without, and of all. It reads the catalog only.
const historySQL = `SELECT count(*) FILTER (WHERE c.relname ~ '^history_[0-9]{8}$'
    AND c.relname > 'history_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')),
  coalesce(sum(pg_relation_size(c.oid)) FILTER (WHERE c.relname = 'history_rest'), 0)::bigint,
  coalesce(sum(pg_relation_size(c.oid)), 0)::bigint
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class h ON h.oid = i.inhparent JOIN pg_namespace n ON n.oid = h.relnamespace
WHERE n.nspname = $1 AND h.relname = 'history'`

// history looks whether the history's days are made ahead.
func (p *patient) history(ctx context.Context) (finding, error) {
	var ahead int
	var rest, all int64
	if err := p.pool.QueryRow(ctx, historySQL, p.schema).Scan(&ahead, &rest, &all); err != nil {
		return finding{}, err
	}
	const do = "a process with queues and without NoGC makes them, once an hour, and drops old ones: is there one, " +
		"and may it EXECUTE gen_durable_roll_history?"
	switch {
	case rest > restWarn:
		f := ok("%s of history are in history_rest, which is for days without a partition", inBytes(rest))
		return f.or(gradeWarn, do+" What is there goes row by row when it is old."), nil
	case ahead == 0 && all > 0:
		return ok("the history has no partition for tomorrow").or(gradeWarn, do), nil
	}
	return ok("%s of history, partitions for %d days ahead", inBytes(all), ahead), nil
}
