UPDATE "gendurable".gen_durable g SET status = 'failed', failure = 'cancelled', last_error = $3, finished_at = (SELECT clock_timestamp()),
  pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL, await_deadline = NULL,
  joined = CASE WHEN g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, 'at', (SELECT clock_timestamp()), 'kind', 'cancel', 'error', left($3, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status NOT IN ('done', 'failed'), false)
RETURNING g.id
