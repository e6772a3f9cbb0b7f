SELECT x.id FROM "gendurable".gen_durable x
WHERE x.status = 'runnable' AND NOT x.paused AND x.pick_lane = 5 AND x.id > $1 AND x.id <> ALL($3::bigint[]) ORDER BY x.id LIMIT $2
