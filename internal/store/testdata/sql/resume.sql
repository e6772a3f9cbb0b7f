UPDATE "gendurable".gen_durable g SET paused = false, pick_lane = CASE WHEN g.pick_lane = 5 THEN 5 ELSE 0 END
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.paused AND coalesce(g.status NOT IN ('done', 'failed'), false)
RETURNING g.id
