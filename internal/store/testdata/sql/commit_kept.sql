UPDATE "gendurable".gen_durable g SET step = u.step, state = u.state::jsonb, awaits = NULL, timed_out = false, attempt = 0, crashes = 0,
  last_error = NULL, visit = g.visit + 1, commit_id = $5::uuid, updated_at = (SELECT clock_timestamp())
FROM (SELECT t.*,
    (SELECT x.ctid FROM "gendurable".gen_durable x WHERE x.id = t.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS tid
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS step,
    unnest($7::text[]) AS state) t OFFSET 0) u
WHERE g.ctid = u.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit
RETURNING g.id
