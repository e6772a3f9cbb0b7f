SELECT g.id, g.uid FROM "gendurable".gen_durable g WHERE g.id = ANY($1::bigint[])
