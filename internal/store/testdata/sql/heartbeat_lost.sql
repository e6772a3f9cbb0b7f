SELECT u.id, coalesce(g.failure = 'cancelled' AND g.claim_token = u.token, false)
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::bigint[]) AS token) u
LEFT JOIN LATERAL (SELECT x.status, x.locked_by, x.claim_token, x.failure FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g ON true
WHERE NOT coalesce(coalesce(g.status = 'executing', false) AND g.locked_by = $3 AND g.claim_token = u.token, false)
