SELECT g.id, coalesce(r.over, true) AND NOT g.begun, g.unmet, g.void, coalesce(e.from_id, 0), coalesce(e.needs, 0)
FROM unnest($1::bigint[], $2::bigint[]) AS u(id, token)
CROSS JOIN LATERAL (SELECT x.id, x.parent_id, coalesce(x.join_failed > 0, false) AS unmet, (x.attempt > 0 OR x.crashes > 0 OR x.commit_id IS NOT NULL) AS begun, x.status <> 'executing' OR x.claim_token <> u.token AS void FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g
LEFT JOIN LATERAL (SELECT x.finished_at IS NOT NULL AS over FROM "gendurable".gen_durable x WHERE x.id = g.parent_id OFFSET 0) r ON true
LEFT JOIN LATERAL (SELECT e.from_id, e.needs FROM "gendurable".edges e WHERE e.to_id = g.id OFFSET 0) e ON true
ORDER BY g.id, e.from_id
