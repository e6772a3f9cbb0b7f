SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = ANY($1::bigint[]) ORDER BY x.id FOR NO KEY UPDATE
