WITH RECURSIVE r(id) AS (
  SELECT unnest($1::bigint[]) UNION SELECT e.to_id FROM r CROSS JOIN LATERAL (SELECT x.to_id FROM "gendurable".edges x WHERE x.from_id = r.id OFFSET 0) e)
SELECT f.node, t.node FROM r CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".edges x WHERE x.from_id = r.id OFFSET 0) e
CROSS JOIN LATERAL (SELECT x.node FROM "gendurable".gen_durable x WHERE x.id = e.from_id OFFSET 0) f
CROSS JOIN LATERAL (SELECT x.node FROM "gendurable".gen_durable x WHERE x.id = e.to_id OFFSET 0) t
