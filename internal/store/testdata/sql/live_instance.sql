SELECT g.id, g.status::text FROM "gendurable".schedules s
CROSS JOIN LATERAL (SELECT x.id, x.status FROM "gendurable".gen_durable x WHERE x.id = s.last_instance OFFSET 0) g
WHERE s.name = $1 AND g.status NOT IN ('done', 'failed')
