
SELECT l.id, l.queue, l.awaits, l.runnable, set_config('gendurable.target', coalesce(l.id::text, ''), true)
FROM (SELECT 1) one LEFT JOIN (
  SELECT g.id, g.queue, coalesce(g.status IN ('awaiting_signal', 'awaiting_children') AND $2::text = ANY(g.awaits), false) AS awaits,
    g.status = 'runnable' AS runnable
  FROM "gendurable".gen_durable g WHERE g.correlation_guard = $1::text AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE) l ON true
