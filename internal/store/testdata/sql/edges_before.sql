SELECT e.from_id, u.id, CASE WHEN o.finished_at IS NULL THEN 0
  WHEN e.needs = 1 OR (e.needs <> 2) = (o.status = 'done') THEN 1 ELSE 2 END, e.needs = 3
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT e.from_id, e.needs FROM "gendurable".edges e WHERE e.to_id = u.id OFFSET 0) e
CROSS JOIN LATERAL (SELECT x.finished_at, x.status FROM "gendurable".gen_durable x WHERE x.id = e.from_id OFFSET 0) o
