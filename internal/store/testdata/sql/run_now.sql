UPDATE "gendurable".gen_durable g SET eligible_at = least(g.eligible_at, (SELECT clock_timestamp())), pick_lane = CASE WHEN g.pick_lane = 5 THEN 5 ELSE 0 END,
  gate = NULL, place = NULL, seat = NULL, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'runnable', false)
RETURNING g.id
