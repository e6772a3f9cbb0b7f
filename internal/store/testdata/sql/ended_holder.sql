SELECT g.id FROM "gendurable".gen_durable g WHERE g.correlation_guard = $1::text AND g.status IN ('done', 'failed')
