WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
k AS MATERIALIZED (
  SELECT k.k, b.id FROM (SELECT DISTINCT unnest($1::text[]) AS k) k
  LEFT JOIN LATERAL (SELECT g.id FROM "gendurable".gen_durable g WHERE g.partition_key = k.k AND g.status = 'executing' LIMIT 1) b ON true),
busy AS MATERIALIZED (
  SELECT g.id FROM "gendurable".gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM k WHERE id IS NOT NULL)) AND coalesce(g.status = 'executing', false)
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
h AS MATERIALIZED (
  SELECT k.k, q.q, n.id FROM k CROSS JOIN LATERAL (
    WITH RECURSIVE queues(q) AS (
      (SELECT g.queue FROM "gendurable".gen_durable g WHERE g.partition_key = k.k AND g.status = 'runnable' AND NOT g.paused ORDER BY g.queue LIMIT 1)
      UNION ALL
      SELECT (SELECT g.queue FROM "gendurable".gen_durable g
        WHERE g.partition_key = k.k AND g.status = 'runnable' AND NOT g.paused AND g.queue > queues.q ORDER BY g.queue LIMIT 1)
      FROM queues WHERE queues.q IS NOT NULL)
    SELECT queues.q FROM queues WHERE queues.q IS NOT NULL) q
  CROSS JOIN LATERAL (
    SELECT f.id, f.pick_lane FROM (
      SELECT g.id, g.pick_lane, g.eligible_at FROM "gendurable".gen_durable g
      WHERE g.partition_key = k.k AND g.queue = q.q AND g.status = 'runnable' AND NOT g.paused
      ORDER BY g.priority, g.eligible_at, g.id LIMIT 1) f
    WHERE f.eligible_at <= (SELECT now FROM c)
    UNION ALL
    SELECT r.id, r.pick_lane FROM (
      WITH RECURSIVE level(p) AS (
        (SELECT g.priority FROM "gendurable".gen_durable g
         WHERE g.partition_key = k.k AND g.queue = q.q AND g.status = 'runnable' AND NOT g.paused
         ORDER BY g.priority LIMIT 1)
        UNION ALL
        SELECT (SELECT g.priority FROM "gendurable".gen_durable g
          WHERE g.partition_key = k.k AND g.queue = q.q AND g.status = 'runnable' AND NOT g.paused AND g.priority > level.p
          ORDER BY g.priority LIMIT 1)
        FROM level WHERE level.p IS NOT NULL)
      SELECT h.id, h.pick_lane FROM level CROSS JOIN LATERAL (
        SELECT g.id, g.pick_lane FROM "gendurable".gen_durable g
        WHERE g.partition_key = k.k AND g.queue = q.q AND g.status = 'runnable' AND NOT g.paused
          AND g.priority = level.p AND g.eligible_at <= (SELECT now FROM c)
        ORDER BY g.eligible_at, g.id LIMIT 1) h
      WHERE level.p IS NOT NULL LIMIT 1) r
    LIMIT 1) n WHERE k.id IS NULL),
l AS MATERIALIZED (
  SELECT g.id, g.pick_lane FROM "gendurable".gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM h)) AND coalesce(g.status = 'runnable', false) AND NOT g.paused
    AND g.eligible_at <= (SELECT now FROM c)
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
u AS (UPDATE "gendurable".gen_durable g SET pick_lane = 0 FROM l WHERE g.id = l.id AND l.pick_lane = 1)
SELECT h.k, h.q, l.id IS NOT NULL FROM h LEFT JOIN l ON l.id = h.id
UNION ALL SELECT k.k, NULL, false FROM k WHERE k.id IS NOT NULL AND k.id NOT IN (SELECT id FROM busy)
