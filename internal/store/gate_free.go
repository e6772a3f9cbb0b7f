package store

import "context"

// freeGatesSQL ends sessions that have had the lock of a gate, and have been silent, for three
// seconds.
//
// A claim holds that lock for the milliseconds of its pipeline, unless the rest of the pipeline
// does not come: its process has been stopped in the middle of a write, or is cut off. Such a
// session waits for its client inside an extended query. There the server has no limit of time
// before Postgres 17: statement_timeout has ended with the statement before, and
// idle_in_transaction_session_timeout begins with the end of the query. So the session would keep
// the lock until the server finds out that the connection is dead, by default in two hours, and no
// instance would go through the gate.
//
// A silent session has not sent its COMMIT, so to end it takes back nothing that a process relies
// on. If the client lives, it finds the connection closed, and claims again. A session that took
// the lock by hand is idle in its transaction, and is left alone.
//
// It sees the sessions of this role, and of roles of which it is a member: it may end them.
// $1 this schema
var freeGatesSQL = named("free gates", `SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.xact_start IS NOT NULL AND a.state = 'active' AND a.wait_event = 'ClientRead'
  AND a.state_change < clock_timestamp() - interval '3 s' AND EXISTS (
    SELECT FROM pg_locks k JOIN {s}.gates r ON (k.classid::bigint << 32 | k.objid::bigint) = hashtextextended('gendurable gate ' || r.name || ' of ' || $1::text, 0)
    WHERE k.pid = a.pid AND k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted)`)

// turnBackSQL brings keys of gates back to the present whose debt is of a time that is yet to
// come: the server's clock was set back. Nothing would be paid off until that time. The debt
// stays, and is paid off from now on. A row that a claim has locked gets its time from that claim.
var turnBackSQL = named("turn back keys", `UPDATE {s}.gate_keys b SET at = clock_timestamp()
FROM (SELECT k.key FROM {s}.gate_keys k WHERE k.at > clock_timestamp() ORDER BY k.key FOR NO KEY UPDATE SKIP LOCKED) l
WHERE b.key = l.key AND b.at > clock_timestamp()`)

// freeGates lets the gates go that a claim has locked which was cut off, and those that a clock
// that was set back keeps shut. Polls call it if a claim has found such a gate since the poll
// before. An error, as where the role lacks a right, leaves things as they are.
func (s *Store) freeGates(ctx context.Context) {
	if s.busy.Swap(false) {
		_ = s.one(ctx, fastLock, freeGatesSQL, nil, s.schema)
	}
	if s.ahead.Swap(false) {
		_ = s.one(ctx, fastLock, turnBackSQL, nil)
	}
}
