SELECT l.id, abs(r.round), CASE WHEN l.status = 'runnable' AND NOT l.paused THEN l.queue ELSE '' END FROM (
  SELECT x.id, x.losers, x.round, x.status, x.paused, x.queue FROM "gendurable".gen_durable x WHERE x.losers IS NOT NULL AND (x.status <> 'awaiting_children' OR x.losers[1] <> x.round) AND x.id > $1
  ORDER BY x.id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED) l
CROSS JOIN LATERAL unnest(l.losers) AS r(round)
WHERE l.status <> 'awaiting_children' OR r.round <> l.round
ORDER BY l.id
