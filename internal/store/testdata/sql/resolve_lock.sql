SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = ANY($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED
