UPDATE "gendurable".gen_durable g SET status = 'runnable', failure = NULL, finished_at = NULL, paused = false, pick_lane = 0, run_gate = NULL, run_place = NULL,
  attempt = 0, crashes = 0, deadline = CASE WHEN g.deadline > (SELECT clock_timestamp()) THEN g.deadline END,
  eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'failed', false)
RETURNING g.id
