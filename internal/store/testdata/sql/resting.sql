
SELECT u.n - 1 FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS u(id, past, n)
LEFT JOIN LATERAL (SELECT x.status, x.visit FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g ON true
WHERE g.status IS NULL OR g.status IN ('done', 'failed') OR g.status IN ('awaiting_signal', 'awaiting_children') AND g.visit > u.past
