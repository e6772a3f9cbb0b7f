SELECT u.id, coalesce(g.commit_id::text, ''),
  coalesce(coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = u.token AND g.visit = u.visit, false),
  coalesce((SELECT p.id FROM "gendurable".gen_durable p WHERE p.id = u.parent), 0)
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::bigint[]) AS u(id, token, visit, parent)
LEFT JOIN LATERAL (SELECT x.status, x.locked_by, x.claim_token, x.visit, x.commit_id FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g
  ON true
