SELECT g.id, g.step, g.status::text, g.state::text, g.xmin::text
FROM "gendurable".gen_durable g WHERE g.id = ANY($1::bigint[]) AND g.fsm = $2 AND g.fsm_version = $3 AND g.finished_at IS NULL ORDER BY g.id
