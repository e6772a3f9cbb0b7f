SELECT coalesce(g.status = 'executing', false) AND g.locked_by = $4 AND g.claim_token = $2 AND g.visit = $3 FROM "gendurable".gen_durable g WHERE g.id = $1
