SELECT g.id FROM unnest($1::bigint[], $2::bigint[]) AS u(id, token) JOIN "gendurable".gen_durable g ON g.id = u.id
WHERE coalesce(g.status = 'executing', false) AND g.locked_by = $3 AND g.claim_token = u.token
