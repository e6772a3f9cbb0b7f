WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
h AS MATERIALIZED (
  SELECT k.k, q.q, n.id FROM (
    SELECT DISTINCT u.k FROM unnest($1::text[], $2::bigint[]) AS u(k, id)
    WHERE u.id IS NULL OR (SELECT g.commit_id FROM "gendurable".gen_durable g WHERE g.id = u.id) = $3::uuid) k
  CROSS JOIN LATERAL (
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
    LIMIT 1) n
  WHERE n.pick_lane = 1),
l AS MATERIALIZED (
  SELECT g.id FROM "gendurable".gen_durable g
  WHERE g.id = ANY(ARRAY(SELECT id FROM h)) AND g.pick_lane = 1 AND g.status = 'runnable'
  ORDER BY g.id FOR NO KEY UPDATE OF g SKIP LOCKED),
u AS (UPDATE "gendurable".gen_durable g SET pick_lane = 0 FROM l WHERE g.id = l.id RETURNING g.id)
SELECT h.k, h.q, u.id IS NOT NULL FROM h LEFT JOIN u ON u.id = h.id
