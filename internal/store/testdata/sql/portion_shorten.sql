UPDATE "gendurable".gen_durable g SET stream_visit = NULL
FROM (SELECT x.id FROM "gendurable".gen_durable x
  WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint AND x.stream_visit = $3::bigint AND x.id <> ALL($4::bigint[])
  ORDER BY x.id FOR NO KEY UPDATE) l
WHERE g.id = l.id
