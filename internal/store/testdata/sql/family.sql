WITH RECURSIVE f(id) AS (
  SELECT unnest($1::bigint[])
  UNION
  SELECT k.id FROM f CROSS JOIN LATERAL (SELECT c.id FROM "gendurable".gen_durable c WHERE c.parent_id = f.id OFFSET 0) k)
SELECT f.id FROM (SELECT id FROM f LIMIT $2) f ORDER BY f.id
