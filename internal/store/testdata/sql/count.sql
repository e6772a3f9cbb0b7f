SELECT g.fsm, g.fsm_version, g.step, g.queue, g.status::text, count(*) FROM "gendurable".gen_durable g
GROUP BY g.fsm, g.fsm_version, g.step, g.queue, g.status ORDER BY g.fsm, g.fsm_version, g.step, g.queue, g.status
