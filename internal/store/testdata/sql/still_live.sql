SELECT x.id, x.status::text FROM "gendurable".gen_durable x WHERE x.id = ANY($1::bigint[]) ORDER BY x.id FOR NO KEY UPDATE
