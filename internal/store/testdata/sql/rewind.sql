WITH e AS (
  UPDATE "gendurable".gen_durable g SET state = u.state::jsonb, step = u.step, status = 'runnable', visit = g.visit + 1, awaits = NULL, timed_out = false,
    await_deadline = NULL, children_pending = 0, losers = CASE WHEN g.status = 'awaiting_children' THEN nullif(array_remove(g.losers, g.round), '{}')
      ELSE g.losers END, attempt = 0, crashes = 0, last_error = NULL, failure = NULL, finished_at = NULL, pick_lane = 0,
    gate = NULL, place = NULL, seat = NULL, run_gate = CASE WHEN g.status <> 'failed' THEN g.run_gate END,
    run_place = CASE WHEN g.status <> 'failed' THEN g.run_place END, paused = g.paused AND g.status <> 'failed',
    deadline = CASE WHEN g.status <> 'failed' OR g.deadline > (SELECT clock_timestamp()) THEN g.deadline END,
    eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp())
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS visit, unnest($3::text[]) AS old, unnest($4::text[]) AS state,
    unnest($5::text[]) AS step, unnest($8::int[]) AS version, unnest($9::text[]) AS shown, unnest($10::text[]) AS becomes) u
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step, (jsonb_strip_nulls(jsonb_build_object('status', x.status, 'step', x.step, 'visit', x.visit, 'attempt', x.attempt,
  'crashes', x.crashes, 'eligible_at', x.eligible_at, 'paused', x.paused, 'deadline', x.deadline, 'failure', x.failure)) || CASE WHEN $9::text[] IS NOT NULL THEN CASE WHEN u.shown IS NULL THEN '{}'
      ELSE jsonb_build_object('state', u.shown::jsonb) END
    WHEN octet_length(x.state::text) <= 8192 THEN jsonb_build_object('state', x.state)
    ELSE jsonb_build_object('state_bytes', octet_length(x.state::text), 'state_md5', md5(x.state::text)) END) AS before
    FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
  WHERE g.ctid = l.tid AND coalesce(g.status NOT IN ('executing', 'done'), false) AND g.fsm_version = u.version
    AND g.visit = u.visit AND g.state = u.old::jsonb
  RETURNING g.id, g.visit, g.attempt, g.fsm_version, g.fsm, l.step AS left, g.step, l.before, (jsonb_strip_nulls(jsonb_build_object('status', g.status, 'step', g.step, 'visit', g.visit, 'attempt', g.attempt,
  'crashes', g.crashes, 'eligible_at', g.eligible_at, 'paused', g.paused, 'deadline', g.deadline, 'failure', g.failure)) || CASE WHEN $9::text[] IS NOT NULL THEN CASE WHEN u.becomes IS NULL THEN '{}'
      ELSE jsonb_build_object('state', u.becomes::jsonb) END
    WHEN octet_length(g.state::text) <= 8192 THEN jsonb_build_object('state', g.state)
    ELSE jsonb_build_object('state_bytes', octet_length(g.state::text), 'state_md5', md5(g.state::text)) END) AS after),
a AS (INSERT INTO "gendurable".history (at, instance, visit, attempt, fsm_version, kind, fsm, step, to_step, actor, reason, before, after)
  SELECT clock_timestamp(), e.id, e.visit, e.attempt, e.fsm_version, 'admin.rewind', e.fsm, e.left, e.step, $6::text, $7::text, e.before, e.after
  FROM e)
SELECT e.id FROM e
