SELECT EXISTS (SELECT FROM "gendurable".gen_durable g WHERE g.id = $1::bigint AND coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = $2::bigint AND g.visit = $3::bigint)
