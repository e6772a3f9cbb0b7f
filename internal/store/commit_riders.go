package store

// The riders of a commit are statements that follow the fenced update in its transaction. Commit
// sends each only if some entry needs it. They find their rows by the mark of this batch. Scalar
// subqueries make the planner start from the ids.

// consumeSQL deletes presented signals without a dedup key. It goes by id, so that a signal that
// arrived since survives. $1 signal ids $2 mark
var consumeSQL = named("consume", `DELETE FROM {s}.signals s
WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`)

// tombstoneSQL consumes presented signals with a dedup key. The row stays, hidden and without its
// payload, so that a redelivery is still a duplicate (T5). $1 signal ids $2 mark
var tombstoneSQL = named("tombstone", `UPDATE {s}.signals s SET consumed_at = (SELECT clock_timestamp()), payload = '{}'
WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`)

// recheckSQL wakes an instance that this batch has parked although a signal that it awaits is
// already there. It is a separate statement after the park, under the row lock of the park. A
// delivery locks the target first, so either this snapshot contains its signal, or the delivery
// will see the parked row (T1).
//
// An instance that parks towards its own step sleeps until a new signal arrives: the signals that
// this execution received do not count. The statement excludes them by their ids, and not by the
// highest one, since ids commit out of order (T2). $1 parked ids $2 mark $3 ids of signals given to
// those that park towards themselves.
var recheckSQL = named("recheck", `UPDATE {s}.gen_durable g SET status = 'runnable', eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp()),
  await_deadline = NULL
WHERE g.id = ANY($1::bigint[]) AND g.commit_id = $2::uuid
  AND (SELECT true FROM {s}.signals s WHERE s.target_id = g.id AND s.name = ANY(g.awaits) AND s.consumed_at IS NULL
    AND s.id NOT IN (SELECT unnest($3::bigint[])) LIMIT 1)
RETURNING g.queue`)

// unlessSQL lets instances that this batch has ended go on, at another step, if a signal of
// certain names waits. It is a separate statement after the end, under the row lock of the end, so
// it is exact: a delivery locks its target first. If that was before the end, the delivery has
// committed, since the end has the lock by now, and this snapshot contains its signal. If it comes
// after, it waits for this transaction, and then finds a live instance, or none and inserts
// nothing. A locked row is not ended at all (SKIP LOCKED), and its outcome comes again.
//
// Signals that the execution was given do not count, by their ids (T2): those are consumed here as
// by a Next. The row becomes what a Next makes of it, except for awaits, by which the claim finds
// the signals. A join is taken back before the rider that counts it. Ending first and undoing it
// makes the usual case cheap: an end that nothing waits for is written once.
//
// $1 ids $2 mark $3 steps $4 states $5, $6 slice of $7 names $8 signals given to these executions
var unlessSQL = named("unless", `WITH turned AS (
  UPDATE {s}.gen_durable g SET status = 'runnable', step = u.step, state = coalesce(u.state::jsonb, g.state), result = NULL, failure = NULL,
    errors = CASE WHEN g.status = 'failed' THEN nullif(g.errors - (-1), '[]') ELSE g.errors END,
    last_error = NULL, awaits = ($7::text[])[u.lo:u.hi], timed_out = false, eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp()),
    attempt = 0, crashes = 0,
    visit = g.visit + 1, finished_at = NULL, joined = nullif(g.joined, $2::uuid)
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($3::text[]) AS step, unnest($4::text[]) AS state, unnest($5::int[]) AS lo,
    unnest($6::int[]) AS hi) u
  WHERE g.id = u.id AND g.commit_id = $2::uuid AND (SELECT true FROM {s}.signals s WHERE s.target_id = g.id
    AND s.name = ANY(($7::text[])[u.lo:u.hi]) AND s.consumed_at IS NULL AND s.id NOT IN (SELECT unnest($8::bigint[])) LIMIT 1)
  RETURNING g.id, g.queue),
consumed AS (DELETE FROM {s}.signals s WHERE s.id = ANY($8::bigint[]) AND s.dedup_key IS NULL AND s.target_id IN (SELECT id FROM turned)),
kept AS (UPDATE {s}.signals s SET consumed_at = (SELECT clock_timestamp()), payload = '{}'
  WHERE s.id = ANY($8::bigint[]) AND s.dedup_key IS NOT NULL AND s.target_id IN (SELECT id FROM turned))
SELECT id, queue FROM turned`)

var (
	dropInboxSQL         = named("drop inbox", dropInboxText(false))
	dropInboxRecordedSQL = named("drop inbox", dropInboxText(true), "recorded")
)

// dropInboxText deletes the inboxes of instances that are done, and returns how many of their
// signals were unconsumed. It follows the update, so that it sees signals that were delivered
// before the row was locked (T3), and unlessSQL, whose instances are not done. Never add
// "finished_at IS NOT NULL": the plan would walk that index. $1 ids $2 mark $3 signals given to
// these executions: the end has consumed them.
//
// It may also append the unconsumed signals of recorded instances to the history, a row for each
// name. Its kind has a dot, so that the row counts as no run of a step. $4 the recorded instances
// $5 worker
func dropInboxText(recorded bool) string {
	return `WITH d AS (DELETE FROM {s}.signals s
WHERE s.target_id = ANY($1::bigint[])
  AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id AND g.status = 'done') = $2::uuid
RETURNING s.id, s.target_id, s.name, s.consumed_at)` + either(recorded, ",\nn AS (", "\n") +
		`SELECT d.target_id, d.name, count(*) AS number FROM d WHERE d.consumed_at IS NULL AND d.id <> ALL(coalesce($3::bigint[], '{}')) GROUP BY 1, 2` +
		when(recorded, `),
w AS (`+historyInto+`(SELECT clock_timestamp()), g.id, g.visit, NULL, NULL, NULL, g.fsm_version, 'signal.unread', $5::uuid, g.fsm, g.step,
    NULL, NULL, left(n.number || ' × ' || n.name, `+errorMost+`), NULL
  FROM n JOIN {s}.gen_durable g ON g.id = n.target_id WHERE g.id = ANY($4::bigint[]))
SELECT n.target_id, n.name, n.number FROM n`)
}

// dropInstancesSQL deletes instances that are done and are not to be kept. It is the last rider,
// so that all others find the row. A transaction that waits for its lock meanwhile (a delivery, an
// operator) finds no row then, and no target. One that unlessSQL lets go on is not done. The
// update holds the row, but not its key: an open transaction of the host's may just have inserted
// a row that refers to it. That waits for no lock (SKIP LOCKED); the GC deletes the instance. $1
// ids $2 mark
var dropInstancesSQL = named("drop instances", `DELETE FROM {s}.gen_durable g WHERE g.id = ANY(ARRAY(
  SELECT x.id FROM {s}.gen_durable x WHERE x.id = ANY($1::bigint[]) AND x.commit_id = $2::uuid AND x.status = 'done'
  FOR UPDATE SKIP LOCKED))`)

var (
	joinSQL         = named("join", joinText(false))
	joinStreamedSQL = named("join streamed", joinText(true))
)

// joinText settles the joins of terminal children, with one aggregated decrement per parent. It
// counts a child only if this commit ended it (joined = mark, so exactly once, T42), and only in
// the parent's current round (T87). The parents have been locked since the update. It returns the
// queue of each parent that it woke, and whether rounds of it have a rest to cancel.
//
// It also returns the queue of a parent that an earlier end has woken and that no worker has yet.
// A claim skips a row that is locked, so one that came between the lock of this transaction and its
// commit has passed the parent by: the queue is to be looked at again.
//
// The join's policy is decided here, under the parent's lock, from the counts that only this
// statement changes: so one commit is the first to make its condition true, and that one wakes the
// parent. See joinWakes. A parent that it wakes waits for nothing any more, not even for its
// timeout.
//
// Where a child of a stream ends, it also numbers the ends of such children. The parents have been
// locked by an earlier statement. An ended child is no parent that waits, so no row is written
// twice. $1 terminal children $2 mark
func joinText(streamed bool) string {
	return `WITH ` + when(streamed, `numbered AS (
  UPDATE {s}.gen_durable k SET stream_nth = {next id} FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id AND x.joined = $2::uuid AND x.parent_round < 0 OFFSET 0) n
  WHERE k.ctid = n.tid),
`) + `l AS MATERIALIZED (
  SELECT d.*, l.* FROM (SELECT k.parent_id, k.parent_round, count(*)::int AS n, count(*) FILTER (WHERE k.status = 'done')::int AS ok,
      count(*) FILTER (WHERE k.status <> 'done' AND k.failure <> 'skipped')::int AS bad FROM unnest($1::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT x.parent_id, x.parent_round, x.joined, x.status, coalesce(x.failure, '') AS failure FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) k
    WHERE k.joined = $2::uuid GROUP BY 1, 2) d
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, ` + joinWakes + ` AS wakes, x.queue,
      x.status = 'runnable' AND NOT x.paused AND x.eligible_at <= (SELECT clock_timestamp()) AS due
    FROM {s}.gen_durable x WHERE x.id = d.parent_id FOR NO KEY UPDATE) l),
woken AS (
  UPDATE {s}.gen_durable p SET children_pending = p.children_pending - l.n,
    join_done = CASE WHEN p.join_round >= p.round THEN p.join_done + l.ok ELSE p.join_done END,
    join_failed = CASE WHEN p.join_round >= p.round THEN p.join_failed + l.bad ELSE p.join_failed END,
    status = CASE WHEN l.wakes THEN 'runnable' ELSE p.status END,
    eligible_at = CASE WHEN l.wakes THEN (SELECT clock_timestamp()) ELSE p.eligible_at END,
    updated_at = CASE WHEN l.wakes THEN (SELECT clock_timestamp()) ELSE p.updated_at END,
    await_deadline = CASE WHEN l.wakes THEN NULL ELSE p.await_deadline END,
    pick_lane = {lane front}
  FROM l WHERE p.ctid = l.tid AND p.round = l.parent_round AND p.status = 'awaiting_children'
  RETURNING p.queue, p.status, p.losers IS NOT NULL AS rest)
SELECT queue, rest FROM woken WHERE status = 'runnable' UNION ALL SELECT queue, false FROM l WHERE due`
}
