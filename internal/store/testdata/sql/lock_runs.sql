SELECT coalesce(g.partition_key, '') FROM "gendurable".gen_durable g WHERE g.id = ANY($1::bigint[]) AND coalesce(g.status = 'runnable' AND g.claim_token = 0, false)
ORDER BY g.id FOR NO KEY UPDATE
