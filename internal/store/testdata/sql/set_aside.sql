UPDATE "gendurable".gen_durable g SET status = 'runnable', gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL,
  pick_lane = CASE WHEN u.fault IS NULL THEN 4 ELSE 0 END, aside_step = g.step, paused = g.paused OR u.fault IS NOT NULL,
  last_error = coalesce(u.fault, g.last_error)
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($4::text[]) AS fault) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $3 AND g.claim_token = u.token
RETURNING g.id
