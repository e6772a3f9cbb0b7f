SELECT x.id FROM "gendurable".gen_durable x
WHERE x.id = ANY(ARRAY(SELECT unnest($1::bigint[]) UNION SELECT e.to_id FROM "gendurable".edges e WHERE e.from_id = ANY($2::bigint[])))
ORDER BY x.id FOR NO KEY UPDATE
