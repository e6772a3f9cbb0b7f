WITH RECURSIVE keys(k) AS (
  (SELECT g.partition_key FROM "gendurable".gen_durable g
   WHERE g.status = 'runnable' AND NOT g.paused AND g.partition_key > $1 ORDER BY g.partition_key LIMIT 1)
  UNION ALL
  SELECT (SELECT g.partition_key FROM "gendurable".gen_durable g
    WHERE g.status = 'runnable' AND NOT g.paused AND g.partition_key > keys.k ORDER BY g.partition_key LIMIT 1)
  FROM keys WHERE keys.k IS NOT NULL),
slice AS MATERIALIZED (SELECT k FROM keys WHERE k IS NOT NULL LIMIT $2)
SELECT s.k, b.id IS NULL AND EXISTS (
    SELECT 1 FROM (SELECT DISTINCT g.queue FROM "gendurable".gen_durable g WHERE g.partition_key = s.k AND g.status = 'runnable' AND NOT g.paused
      AND g.pick_lane = 1) q
    CROSS JOIN LATERAL (
    SELECT f.id, f.pick_lane FROM (
      SELECT g.id, g.pick_lane, g.eligible_at FROM "gendurable".gen_durable g
      WHERE g.partition_key = s.k AND g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused
      ORDER BY g.priority, g.eligible_at, g.id LIMIT 1) f
    WHERE f.eligible_at <= statement_timestamp()
    UNION ALL
    SELECT r.id, r.pick_lane FROM (
      WITH RECURSIVE level(p) AS (
        (SELECT g.priority FROM "gendurable".gen_durable g
         WHERE g.partition_key = s.k AND g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused
         ORDER BY g.priority LIMIT 1)
        UNION ALL
        SELECT (SELECT g.priority FROM "gendurable".gen_durable g
          WHERE g.partition_key = s.k AND g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.priority > level.p
          ORDER BY g.priority LIMIT 1)
        FROM level WHERE level.p IS NOT NULL)
      SELECT h.id, h.pick_lane FROM level CROSS JOIN LATERAL (
        SELECT g.id, g.pick_lane FROM "gendurable".gen_durable g
        WHERE g.partition_key = s.k AND g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused
          AND g.priority = level.p AND g.eligible_at <= statement_timestamp()
        ORDER BY g.eligible_at, g.id LIMIT 1) h
      WHERE level.p IS NOT NULL LIMIT 1) r
    LIMIT 1) n WHERE n.pick_lane = 1)
FROM slice s
LEFT JOIN LATERAL (SELECT g.id FROM "gendurable".gen_durable g WHERE g.partition_key = s.k AND g.status = 'executing' LIMIT 1) b ON true
ORDER BY s.k
