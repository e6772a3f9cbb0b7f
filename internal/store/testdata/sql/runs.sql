SELECT g.correlation_guard, g.id, g.finished_at IS NOT NULL, coalesce(g.status = 'runnable' AND g.claim_token = 0, false)
FROM "gendurable".gen_durable g WHERE g.correlation_guard = ANY($1::text[])
