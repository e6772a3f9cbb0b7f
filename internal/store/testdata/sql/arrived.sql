SELECT coalesce(max(x.id), 0), count(*), array_agg(x.id ORDER BY x.id) FILTER (WHERE x.lined), array_agg(x.gate ORDER BY x.id) FILTER (WHERE x.lined),
  (SELECT coalesce((SELECT n.id FROM "gendurable".gen_durable n ORDER BY n.id DESC LIMIT 1), 0))
FROM (SELECT z.* FROM (SELECT g.id, g.gate, g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AS lined FROM "gendurable".gen_durable g WHERE g.id > $2::bigint ORDER BY g.id LIMIT 1000) z LIMIT $3) x
