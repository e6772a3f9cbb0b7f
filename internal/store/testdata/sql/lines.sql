SELECT q.queue FROM unnest($1::text[]) AS q(queue)
WHERE (SELECT g.id FROM "gendurable".gen_durable g WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) IS NOT NULL
UNION ALL SELECT '' WHERE (SELECT g.id FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) IS NOT NULL
