SELECT g.id, g.queue FROM "gendurable".gen_durable g WHERE g.id = ANY($1::bigint[])
  AND NOT EXISTS (SELECT FROM "gendurable".gen_durable k WHERE k.parent_id = g.id OFFSET 0) ORDER BY g.id
