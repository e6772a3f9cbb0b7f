DELETE FROM "gendurable".gen_durable g WHERE g.id = ANY(ARRAY(
  SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = ANY($1::bigint[]) AND x.commit_id = $2::uuid AND x.status = 'done'
  FOR UPDATE SKIP LOCKED))
