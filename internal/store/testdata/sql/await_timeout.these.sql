WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
due AS MATERIALIZED (
  SELECT x.ctid AS tid FROM "gendurable".gen_durable x
  WHERE x.await_deadline <= (SELECT now FROM c) AND coalesce(x.status IN ('awaiting_signal', 'awaiting_children'), false) AND x.id = ANY($2::bigint[])
  ORDER BY x.id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED)
UPDATE "gendurable".gen_durable g SET status = 'runnable', eligible_at = (SELECT now FROM c), pick_lane = 0, await_deadline = NULL, timed_out = true,
  updated_at = (SELECT now FROM c)
FROM due WHERE g.ctid = due.tid
RETURNING g.queue
