WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE "gendurable".gen_durable g SET status = 'done', result = u.result::jsonb, awaits = NULL, timed_out = false, await_deadline = NULL, pick_lane = 0,
  last_error = NULL, failure = NULL, locked_by = NULL, lease_expires_at = NULL, gate = NULL, place = NULL, seat = NULL,
  finished_at = (SELECT now FROM c), commit_id = $5::uuid, updated_at = (SELECT now FROM c)
FROM (SELECT t.*,
    (SELECT x.ctid FROM "gendurable".gen_durable x WHERE x.id = t.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS tid
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS result) t OFFSET 0) u
WHERE g.ctid = u.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit
RETURNING g.id
