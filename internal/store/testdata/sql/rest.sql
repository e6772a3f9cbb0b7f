SELECT l.id, r.round, CASE WHEN l.status = 'runnable' AND NOT l.paused THEN l.queue ELSE '' END FROM (
  SELECT x.id, x.losers, x.graphs, x.round, x.status, x.paused, x.queue, x.finished_at FROM "gendurable".gen_durable x WHERE (x.losers IS NOT NULL AND (x.status <> 'awaiting_children' OR x.losers[1] <> x.round)
    OR x.graphs IS NOT NULL AND x.finished_at IS NOT NULL) AND x.id > $1
  ORDER BY x.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) l
CROSS JOIN LATERAL (SELECT abs(r.round) AS round FROM unnest(l.losers) AS r(round) WHERE l.status <> 'awaiting_children' OR r.round <> l.round
  UNION SELECT r.round FROM unnest(l.graphs) AS r(round) WHERE l.finished_at IS NOT NULL) r
ORDER BY l.id
