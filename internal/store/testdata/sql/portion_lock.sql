SELECT x.stream_most FROM "gendurable".gen_durable x
WHERE x.id = $1 AND x.claim_token = $2 AND x.visit = $3 AND coalesce(x.status = 'executing', false) FOR NO KEY UPDATE
