UPDATE "gendurable".gen_durable g SET status = 'failed', failure = 'cancelled', last_error = 'cancelled: its parent does not wait for it any more',
  finished_at = (SELECT clock_timestamp()), pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL,
  await_deadline = NULL, joined = CASE WHEN g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  losers = (SELECT array_agg(DISTINCT k.parent_round) FROM "gendurable".gen_durable k WHERE k.parent_id = g.id AND k.finished_at IS NULL),
  errors = coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, 'at', (SELECT clock_timestamp()), 'kind', 'cancel', 'error', 'cancelled: its parent does not wait for it any more'),
  commit_id = $2::uuid, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.finished_at IS NULL
RETURNING g.id
