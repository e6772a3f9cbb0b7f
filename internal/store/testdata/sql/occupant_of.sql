(SELECT o.correlation_guard, o.id FROM "gendurable".gen_durable g
CROSS JOIN LATERAL (SELECT x.correlation_guard, x.id FROM "gendurable".gen_durable x WHERE x.correlation_guard = g.correlation_key OFFSET 0) o
WHERE g.id = ANY($1::bigint[]) AND o.id <> g.id LIMIT 1)
UNION ALL
(SELECT g.correlation_key, min(g.id) FROM "gendurable".gen_durable g
WHERE g.id = ANY($1::bigint[]) AND 'runnable' = ANY(g.correlation_scope) GROUP BY g.correlation_key HAVING count(*) > 1 LIMIT 1)
LIMIT 1
