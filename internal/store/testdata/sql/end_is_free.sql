WITH n AS MATERIALIZED (SELECT $1::bigint AS id UNION SELECT e.to_id FROM "gendurable".edges e WHERE e.from_id = $2::bigint),
l AS MATERIALIZED (SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = ANY(ARRAY(SELECT n.id FROM n)) FOR NO KEY UPDATE SKIP LOCKED)
SELECT (SELECT count(*) FROM l) = (SELECT count(*) FROM "gendurable".gen_durable x WHERE x.id = ANY(ARRAY(SELECT n.id FROM n)))
