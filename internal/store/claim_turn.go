package store

// claimTurnSQL makes claims of one queue take turns. A claim holds its turn until its COMMIT. One
// that comes meanwhile tries again after a millisecond, after two more, and so on up to ten, and
// goes on without the turn when its patience is over, since no promise depends on it.
//
// Without turns, a claim that begins beside another one finds the rows of the other in front. SKIP
// LOCKED passes over rows that are still locked. But rows that the other has committed since this
// claim's snapshot are locked anew, are then seen to be executing, and stay locked until this claim
// ends. Their steps end meanwhile, and their outcomes meet the locks. On a busy server claims then
// take longer, so that still more of them overlap: of 16 processes with 20 slots each, claims cost
// ten times as much, and four outcomes in five had to be sent again.
//
// The claim that follows in the same transaction takes a new snapshot, behind the end of the turn
// before. Postgres makes a transaction visible before it releases its locks.
//
// A claim may be slow, or stuck: its server process is stopped, or the front is full of dead
// entries. The others of its queue then wait for their patience each, and go on as without turns.
// See worker.patience for its bounds. $1 schema $2 queue $3 patience, µs
var claimTurnSQL = named("claim turn", `SELECT FROM generate_series(1, 1000) AS i
WHERE pg_try_advisory_xact_lock(`+turnKey("$1::text", "$2::text")+`)
  OR clock_timestamp() >= statement_timestamp() + $3::bigint * interval '1 microsecond'
  OR pg_sleep(least(i, 10) / 1000.0) IS NULL
LIMIT 1`)

// turnKey renders the key of the lock that a claim of a queue has: 64 bits of a hash of schema and
// queue, as livenessKey. schema and queue are SQL.
func turnKey(schema, queue string) string {
	return `hashtextextended('gendurable turn ' || ` + schema + ` || ' ' || ` + queue + `, 0)`
}
