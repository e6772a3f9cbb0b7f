WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
p AS MATERIALIZED (SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = ANY($19::bigint[]) FOR NO KEY UPDATE SKIP LOCKED),
h AS (UPDATE "gendurable".gen_durable g SET
  status = CASE u.kind WHEN 'await' THEN 'awaiting_signal' WHEN 'done' THEN 'done' WHEN 'fail' THEN 'failed'
    WHEN 'children' THEN CASE WHEN u.n > 0 THEN 'awaiting_children'::"gendurable".durable_status ELSE 'runnable' END
    WHEN 'rejoin' THEN 'awaiting_children' ELSE 'runnable' END,
  step = coalesce(u.step, g.step),
  state = coalesce(u.state::jsonb, g.state),
  result = CASE u.kind WHEN 'done' THEN u.result::jsonb ELSE g.result END,
  awaits = CASE WHEN u.kind IN ('retry', 'again', 'fail') THEN g.awaits WHEN u.kind = 'await' THEN ($16::text[])[u.lo:u.hi] END,
  timed_out = CASE WHEN u.kind IN ('retry', 'again', 'fail') THEN g.timed_out ELSE false END,
  await_deadline = CASE u.kind WHEN 'await' THEN u.due END,
  eligible_at = CASE WHEN u.kind IN ('next', 'retry', 'again') OR u.kind = 'children' AND u.n = 0 THEN greatest(u.due, u.now)
    ELSE g.eligible_at END,
  pick_lane = 0,
  attempt = CASE WHEN u.kind = 'retry' THEN least(g.attempt, 2147483646) + 1 WHEN u.kind IN ('again', 'done', 'fail') THEN g.attempt ELSE 0 END,
  crashes = CASE WHEN u.kind IN ('retry', 'again', 'done', 'fail') THEN g.crashes ELSE 0 END,
  last_error = CASE WHEN u.kind IN ('retry', 'again', 'fail') THEN coalesce(u.err, g.last_error) END,
  failure = u.failure,
  errors = CASE WHEN u.kind = 'fail' OR u.kind = 'retry' AND u.err IS NOT NULL THEN coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, 'at', u.now,
    'kind', CASE WHEN u.kind = 'retry' THEN 'retry' WHEN u.failure = 'crashes' THEN 'crash' WHEN u.failure = 'deadline' THEN 'deadline'
      ELSE 'fail' END,
    'error', left(coalesce(u.err, ''), 1024)) ELSE g.errors END,
  locked_by = NULL,
  lease_expires_at = NULL,
  gate = NULL,
  place = NULL,
  seat = NULL,
  visit = g.visit + CASE WHEN u.kind IN ('next', 'await', 'children', 'rejoin') THEN 1 ELSE 0 END,
  round = CASE u.kind WHEN 'children' THEN g.visit + 1 ELSE g.round END,
  children_pending = CASE u.kind WHEN 'children' THEN u.n ELSE g.children_pending END,
  dropped = CASE u.kind WHEN 'children' THEN NULL ELSE g.dropped END,
  finished_at = CASE WHEN u.kind IN ('done', 'fail') THEN u.now END,
  joined = CASE WHEN u.kind IN ('done', 'fail') AND g.parent_id IS NOT NULL AND g.joined IS NULL THEN $5::uuid ELSE g.joined END,
  commit_id = $5::uuid,
  updated_at = u.now
FROM (
  SELECT t.*, (SELECT now FROM c) AS now,
    CASE WHEN t.at IS NOT NULL THEN t.at WHEN t.us IS NOT NULL THEN (SELECT now FROM c) + t.us * interval '1 microsecond' END AS due
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token, unnest($3::bigint[]) AS visit, unnest($6::text[]) AS kind,
    unnest($7::text[]) AS step, unnest($8::text[]) AS state, unnest($9::text[]) AS result, unnest($10::bigint[]) AS us,
    unnest($11::timestamptz[]) AS at, unnest($12::text[]) AS err, unnest($13::text[]) AS failure, unnest($14::int[]) AS lo,
    unnest($15::int[]) AS hi, unnest($17::int[]) AS n, unnest($18::bigint[]) AS parent, unnest($20::bigint[]) AS took, unnest($21::boolean[]) AS ahead, unnest($22::text[]) AS diff) t
  WHERE t.parent = ANY(ARRAY(SELECT id FROM p)) OR t.parent IS NULL OR (SELECT gone.id FROM "gendurable".gen_durable gone WHERE gone.id = t.parent) IS NULL) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step, x.attempt, x.updated_at, x.eligible_at
  FROM "gendurable".gen_durable x WHERE x.id = u.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit
RETURNING g.id, g.updated_at AS at, u.visit, u.took, CASE WHEN coalesce(u.ahead, false) THEN 0
    ELSE greatest(0, (date_part('epoch', l.updated_at - l.eligible_at) * 1000000)::bigint) END AS waited, l.attempt, g.fsm_version,
  u.kind AS kind, g.fsm, l.step AS from_step, CASE WHEN u.kind IN ('next', 'await', 'children', 'rejoin') THEN g.step END AS to_step, u.failure AS failure, u.err AS err, u.diff),
w AS (INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT at, id, visit, took, waited, attempt, fsm_version, kind, $4::uuid, fsm, from_step, to_step, failure, left(err, 1024),
  diff::jsonb FROM h WHERE took >= 0)
SELECT id FROM h
