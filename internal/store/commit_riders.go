package store

// The riders of a commit: statements that follow the fenced update in its transaction, each only if some entry asks for it. They find
// their rows by the mark of this batch. Scalar subqueries keep the ids in charge of the plan.

// consumeSQL deletes presented signals without a dedup key: by id, so that one that arrived since survives. $1 signal ids $2 mark
const consumeSQL = `DELETE FROM {s}.signals s
WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`

// tombstoneSQL consumes presented signals that have a dedup key: the row stays, hidden and without its payload, so that a redelivery is
// still a duplicate (T5). $1 signal ids $2 mark
const tombstoneSQL = `UPDATE {s}.signals s SET consumed_at = (SELECT clock_timestamp()), payload = '{}'
WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`

// recheckSQL wakes what has just parked though a signal it awaits is there already. A statement of its own after the park, under the
// park's row lock: whoever delivers locks the target first, so either its signal is in this snapshot or it will see the parked row (T1).
// What parks towards its own step sleeps until something new arrives: the signals this execution was given do not count, by set
// difference, since ids commit out of order (T2). $1 parked ids $2 mark $3 ids given to those that park towards themselves
const recheckSQL = `UPDATE {s}.gen_durable g SET status = 'runnable', eligible_at = (SELECT clock_timestamp()), await_deadline = NULL
WHERE g.id = ANY($1::bigint[]) AND g.commit_id = $2::uuid
  AND (SELECT true FROM {s}.signals s WHERE s.target_id = g.id AND s.name = ANY(g.awaits) AND s.consumed_at IS NULL
    AND s.id NOT IN (SELECT unnest($3::bigint[])) LIMIT 1)
RETURNING g.queue`

// dropInboxSQL ends the inbox of what is done. Later than the update, so that it sees what was delivered before the row was locked (T3).
// Never add "finished_at IS NOT NULL": the plan would walk that index. $1 ids $2 mark
const dropInboxSQL = `DELETE FROM {s}.signals s
WHERE s.target_id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM {s}.gen_durable g WHERE g.id = s.target_id) = $2::uuid`

// joinSQL settles the joins of terminal children: one aggregated decrement per parent, only where this commit is the one that ended the
// child (joined = mark: exactly once, T42), only in the parent's current round (T87). The parents are locked since the update.
// $1 terminal children $2 mark. Returns the queue of each parent it woke.
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
