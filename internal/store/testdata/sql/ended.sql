
SELECT u.id FROM unnest($1::bigint[]) AS u(id)
LEFT JOIN LATERAL (SELECT x.status FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g ON true
WHERE g.status IS NULL OR g.status IN ('done', 'failed')
