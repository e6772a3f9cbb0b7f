UPDATE "gendurable".gen_durable g SET progress = $4::text::jsonb WHERE g.id = $1 AND coalesce(g.status = 'executing', false) AND g.locked_by = $3 AND g.claim_token = $2 RETURNING g.id
