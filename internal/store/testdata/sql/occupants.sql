SELECT g.correlation_guard, g.id, g.uid FROM "gendurable".gen_durable g WHERE g.correlation_guard = ANY($1::text[])
