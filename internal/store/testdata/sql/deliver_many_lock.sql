
WITH m AS MATERIALIZED (SELECT m.id, m.key, m.n FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY m (id, key, n)),
f AS MATERIALIZED (
  SELECT g.id FROM "gendurable".gen_durable g WHERE g.correlation_guard = ANY(ARRAY(SELECT DISTINCT m.key FROM m WHERE m.key IS NOT NULL))
  UNION SELECT m.id FROM m WHERE m.id IS NOT NULL),
l AS MATERIALIZED (
  SELECT g.id, g.correlation_guard AS key, g.queue, g.status = 'runnable' AS runnable
  FROM "gendurable".gen_durable g WHERE g.id = ANY(ARRAY(SELECT f.id FROM f)) AND g.status NOT IN ('done', 'failed') ORDER BY g.id FOR NO KEY UPDATE),
t AS MATERIALIZED (
  SELECT m.n, coalesce(i.id, k.id) AS id, coalesce(i.queue, k.queue) AS queue, coalesce(i.runnable, k.runnable) AS runnable
  FROM m LEFT JOIN l i ON i.id = m.id LEFT JOIN l k ON k.key = m.key),
s AS MATERIALIZED (SELECT length(set_config('gendurable.targets', array_agg(t.id ORDER BY t.n)::text, true)) AS set FROM t)
SELECT t.id, t.queue, t.runnable, s.set FROM t CROSS JOIN s ORDER BY t.n
