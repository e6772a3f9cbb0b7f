UPDATE "gendurable".gen_durable g SET pick_lane = 0
FROM (SELECT unnest($1::bigint[]) AS id) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.pick_lane = 4 AND coalesce(g.status = 'runnable', false)
