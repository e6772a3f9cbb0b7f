DELETE FROM "gendurable".signals s
WHERE s.id = ANY($1::bigint[]) AND (SELECT g.commit_id FROM "gendurable".gen_durable g WHERE g.id = s.target_id) = $2::uuid
