SELECT x.finished_at IS NOT NULL, CASE WHEN x.round = $2::bigint AND x.join_round >= x.round THEN x.join_size END, x.queue
FROM "gendurable".gen_durable x WHERE x.id = $1::bigint
