SELECT x.id FROM "gendurable".gen_durable x
WHERE x.id = ANY(ARRAY(SELECT unnest($1::bigint[]) UNION SELECT e.to_id FROM "gendurable".edges e WHERE e.from_id = $2::bigint
  UNION SELECT t.id FROM "gendurable".gen_durable t WHERE t.parent_id = $3::bigint AND t.parent_round = $4::bigint AND t.node = ANY($5::text[])))
ORDER BY x.id FOR NO KEY UPDATE
