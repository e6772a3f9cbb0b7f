SELECT g.state::text, CASE WHEN g.round = g.visit OR g.join_round = g.visit THEN g.dropped::text END FROM "gendurable".gen_durable g
WHERE g.id = $1 AND coalesce(g.status = 'executing', false) AND g.locked_by = $2 AND g.claim_token = $3
