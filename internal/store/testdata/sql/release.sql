UPDATE "gendurable".gen_durable g SET status = 'runnable', pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL,
  lease_expires_at = NULL, commit_id = CASE WHEN g.id = ANY($4::bigint[]) THEN coalesce(g.commit_id, '00000000-0000-0000-0000-000000000000'::uuid) ELSE g.commit_id END
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $3 AND g.claim_token = u.token
RETURNING g.id
