WITH moved AS (
  UPDATE "gendurable".gen_durable g SET fsm_version = $6::int, step = u.step, state = u.state::jsonb,
    paused = g.paused AND NOT (g.paused AND coalesce(starts_with(g.last_error, 'cannot become version '), false)), last_error = CASE WHEN NOT (g.paused AND coalesce(starts_with(g.last_error, 'cannot become version '), false)) THEN g.last_error END,
    pick_lane = CASE WHEN g.pick_lane = 1 AND NOT (g.paused AND coalesce(starts_with(g.last_error, 'cannot become version '), false)) THEN 1 ELSE CASE WHEN g.pick_lane = 5 THEN 5 ELSE 0 END END, gate = NULL, place = NULL
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::text[])::xid AS written, unnest($3::text[]) AS step, unnest($4::text[]) AS state) u
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, x.step AS was FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
  WHERE g.ctid = l.tid AND g.xmin = u.written AND g.fsm = $9 AND g.fsm_version = $5::int
    AND coalesce(g.status NOT IN ('executing', 'done', 'failed'), false)
  RETURNING g.id, g.visit, g.attempt, g.fsm, g.step, l.was),
recorded AS (
  INSERT INTO "gendurable".history (at, instance, visit, attempt, fsm_version, kind, fsm, step, actor, reason, before, after)
  SELECT clock_timestamp(), m.id, m.visit, m.attempt, $6::int, 'admin.migrate', m.fsm, m.step, $7::text, $8::text,
    jsonb_build_object('version', $5::int, 'step', m.was), jsonb_build_object('version', $6::int, 'step', m.step) FROM moved m)
SELECT m.id FROM moved m
