WITH h AS (UPDATE "gendurable".gen_durable g SET step = u.step, state = u.state::jsonb, awaits = NULL, timed_out = false, attempt = 0, crashes = 0,
  last_error = NULL, visit = g.visit + 1, commit_id = $5::uuid, updated_at = (SELECT clock_timestamp())
FROM (SELECT t.*
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS step,
    unnest($7::text[]) AS state, unnest($8::bigint[]) AS took, unnest($9::boolean[]) AS ahead, unnest($10::text[]) AS diff) t) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step, x.attempt, x.updated_at, x.eligible_at
  FROM "gendurable".gen_durable x WHERE x.id = u.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit
RETURNING g.id, g.updated_at AS at, u.visit, u.took, CASE WHEN coalesce(u.ahead, false) THEN 0
    ELSE greatest(0, (date_part('epoch', l.updated_at - l.eligible_at) * 1000000)::bigint) END AS waited, l.attempt, g.fsm_version,
  'next' AS kind, g.fsm, l.step AS from_step, g.step AS to_step, NULL::text AS failure, NULL::text AS err, u.diff),
w AS (INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT at, id, visit, took, waited, attempt, fsm_version, kind, $4::uuid, fsm, from_step, to_step, failure, left(err, 1024),
  diff::jsonb FROM h WHERE took >= 0)
SELECT id FROM h
