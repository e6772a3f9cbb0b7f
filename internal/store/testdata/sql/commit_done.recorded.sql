WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
h AS (UPDATE "gendurable".gen_durable g SET status = 'done', result = u.result::jsonb, awaits = NULL, timed_out = false, await_deadline = NULL, pick_lane = 0,
  last_error = NULL, failure = NULL, locked_by = NULL, lease_expires_at = NULL, gate = NULL, place = NULL, seat = NULL,
  finished_at = (SELECT now FROM c), commit_id = $5::uuid, updated_at = (SELECT now FROM c)
FROM (SELECT t.*
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS result, unnest($7::bigint[]) AS took, unnest($8::boolean[]) AS ahead, unnest($9::text[]) AS diff) t) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step, x.attempt, x.updated_at, x.eligible_at
  FROM "gendurable".gen_durable x WHERE x.id = u.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit
RETURNING g.id, g.updated_at AS at, u.visit, u.took, CASE WHEN coalesce(u.ahead, false) THEN 0
    ELSE greatest(0, (date_part('epoch', l.updated_at - l.eligible_at) * 1000000)::bigint) END AS waited, l.attempt, g.fsm_version,
  'done' AS kind, g.fsm, l.step AS from_step, NULL::text AS to_step, NULL::text AS failure, NULL::text AS err, u.diff),
w AS (INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT at, id, visit, took, waited, attempt, fsm_version, kind, $4::uuid, fsm, from_step, to_step, failure, left(err, 1024),
  diff::jsonb FROM h WHERE took >= 0)
SELECT id FROM h
