SELECT g.id, g.claim_token, coalesce(g.partition_key, ''), coalesce(g.gate, '') FROM "gendurable".gen_durable g
WHERE g.status = 'executing' AND g.locked_by = $1 AND g.queue = $2
