UPDATE "gendurable".gen_durable g SET status = 'runnable', pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL,
  lease_expires_at = NULL,
  errors = CASE WHEN u.cut IS NULL THEN g.errors WHEN coalesce(g.errors->-1->>'kind' = 'release' AND g.errors->-1->>'visit' = g.visit::text AND g.errors->-1->>'attempt' = g.attempt::text
    AND jsonb_typeof(g.errors->-1->'times') = 'number', false)
    THEN jsonb_set(g.errors, '{-1}', (g.errors->-1) || jsonb_build_object('at', (SELECT clock_timestamp()), 'worker', g.locked_by,
      'times', trunc(least((g.errors->-1->>'times')::numeric, 1000000000)) + 1, 'error', left(u.cut, 1024)))
    ELSE coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, 'at', (SELECT clock_timestamp()), 'kind', 'release', 'worker', g.locked_by, 'times', 1, 'error', left(u.cut, 1024)) END,
  commit_id = CASE WHEN g.id = ANY($5::bigint[]) THEN coalesce(g.commit_id, '00000000-0000-0000-0000-000000000000'::uuid) ELSE g.commit_id END
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($4::text[]) AS cut) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $3 AND g.claim_token = u.token
RETURNING g.id
