package store

// The riders of a commit are statements that follow the fenced update in its transaction. Commit
// sends each only if some entry needs it. They find their rows by the mark of this batch. Scalar
// subqueries make the planner start from the ids.

// consumeSQL deletes presented signals without a dedup key. It goes by id, so that a signal that
// arrived since survives. $1 signal ids $2 mark
const consumeSQL = `DELETE FROM {s}.signals s
WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`

// tombstoneSQL consumes presented signals with a dedup key. The row stays, hidden and without its
// payload, so that a redelivery is still a duplicate (T5). $1 signal ids $2 mark
const tombstoneSQL = `UPDATE {s}.signals s SET consumed_at = (SELECT clock_timestamp()), payload = '{}'
WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`

// recheckSQL wakes an instance that this batch has parked although a signal that it awaits is
// already there. It is a separate statement after the park, under the row lock of the park. A
// delivery locks the target first, so either this snapshot contains its signal, or the delivery
// will see the parked row (T1).
//
// An instance that parks towards its own step sleeps until a new signal arrives: the signals that
// this execution received do not count. The statement excludes them by their ids, and not by the
// highest one, since ids commit out of order (T2). $1 parked ids $2 mark $3 ids of signals given to
// those that park towards themselves.
const recheckSQL = `UPDATE {s}.gen_durable g SET status = 'runnable', eligible_at = (SELECT clock_timestamp()), await_deadline = NULL
WHERE g.id = ANY($1::bigint[]) AND g.commit_id = $2::uuid
  AND (SELECT true FROM {s}.signals s WHERE s.target_id = g.id AND s.name = ANY(g.awaits) AND s.consumed_at IS NULL
    AND s.id NOT IN (SELECT unnest($3::bigint[])) LIMIT 1)
RETURNING g.queue`

// dropInboxSQL deletes the inboxes of instances that are done. It follows the update, so that it
// sees signals that were delivered before the row was locked (T3). Never add "finished_at IS NOT
// NULL": the plan would walk that index. $1 ids $2 mark
const dropInboxSQL = `DELETE FROM {s}.signals s
WHERE s.target_id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`

// joinSQL settles the joins of terminal children, with one aggregated decrement per parent. It
// counts a child only if this commit ended it (joined = mark, so exactly once, T42), and only in
// the parent's current round (T87). The parents have been locked since the update. It returns the
// queue of each parent that it woke. $1 terminal children $2 mark
const joinSQL = `WITH woken AS (
  UPDATE {s}.gen_durable p SET children_pending = p.children_pending - d.n,
    status = CASE WHEN p.children_pending <= d.n THEN 'runnable' ELSE p.status END,
    eligible_at = CASE WHEN p.children_pending <= d.n THEN (SELECT clock_timestamp()) ELSE p.eligible_at END,
    updated_at = CASE WHEN p.children_pending <= d.n THEN (SELECT clock_timestamp()) ELSE p.updated_at END,
    pick_lane = 0
  FROM (SELECT k.parent_id, k.parent_round, count(*)::int AS n FROM unnest($1::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT x.parent_id, x.parent_round, x.joined FROM {s}.gen_durable x WHERE x.id = u.id OFFSET 0) k
    WHERE k.joined = $2::uuid GROUP BY 1, 2) d
  CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = d.parent_id FOR NO KEY UPDATE) l
  WHERE p.ctid = l.tid AND p.round = d.parent_round AND p.status = 'awaiting_children'
  RETURNING p.queue, p.status)
SELECT queue FROM woken WHERE status = 'runnable'`
