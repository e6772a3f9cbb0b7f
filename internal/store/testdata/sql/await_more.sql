UPDATE "gendurable".gen_durable p SET children_pending = p.children_pending + u.n
FROM unnest($1::bigint[], $2::int[]) AS u(id, n)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id AND coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) FOR NO KEY UPDATE) l
WHERE p.ctid = l.tid
