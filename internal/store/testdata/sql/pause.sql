UPDATE "gendurable".gen_durable g SET paused = true,
  gate = CASE WHEN g.status = 'executing' THEN g.gate END, place = CASE WHEN g.status = 'executing' THEN g.place END,
  seat = CASE WHEN g.status = 'executing' THEN g.seat END,
  pick_lane = CASE WHEN g.pick_lane = 3 THEN 0 ELSE g.pick_lane END
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND NOT g.paused AND coalesce(g.status NOT IN ('done', 'failed'), false)
RETURNING g.id
