WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT q.queue, (extract(epoch FROM least(n.at, a.at) - (SELECT clock_timestamp())) * 1000000)::bigint, false, false, false, false
FROM unnest($1::text[]) AS q(queue)
CROSS JOIN LATERAL (
  WITH RECURSIVE level(p, at) AS (
    (SELECT g.priority, g.eligible_at FROM "gendurable".gen_durable g
     WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 ORDER BY g.priority, g.eligible_at LIMIT 1)
    UNION ALL
    SELECT n.priority, n.eligible_at FROM level CROSS JOIN LATERAL (
      SELECT g.priority, g.eligible_at FROM "gendurable".gen_durable g
      WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND g.priority > level.p
      ORDER BY g.priority, g.eligible_at LIMIT 1) n)
  SELECT min(level.at) AS at FROM level) n
CROSS JOIN LATERAL (
  WITH RECURSIVE aside(f, v) AS (
    (SELECT g.fsm, g.fsm_version FROM "gendurable".gen_durable g
     WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2 ORDER BY g.fsm, g.fsm_version LIMIT 1)
    UNION ALL
    SELECT n.fsm, n.fsm_version FROM aside CROSS JOIN LATERAL (
      SELECT g.fsm, g.fsm_version FROM "gendurable".gen_durable g
      WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2
        AND (g.fsm, g.fsm_version) > (aside.f, aside.v) ORDER BY g.fsm, g.fsm_version LIMIT 1) n)
  SELECT min(s.eligible_at) AS at FROM aside CROSS JOIN LATERAL (
    SELECT g.eligible_at FROM "gendurable".gen_durable g
    WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2 AND g.fsm = aside.f AND g.fsm_version = aside.v
    ORDER BY g.priority, g.eligible_at LIMIT 1) s
  WHERE (aside.f || '/' || aside.v) = ANY($2::text[])) a
UNION ALL
SELECT NULL, (SELECT (extract(epoch FROM g.await_deadline - (SELECT clock_timestamp())) * 1000000)::bigint
  FROM "gendurable".gen_durable g WHERE g.await_deadline IS NOT NULL AND coalesce(g.status IN ('awaiting_signal', 'awaiting_children'), false)
  ORDER BY g.await_deadline LIMIT 1),
  (SELECT true FROM "gendurable".gen_durable x WHERE x.deadline <= (SELECT now FROM c) AND x.finished_at IS NULL AND coalesce(x.status <> 'executing', false) ORDER BY x.deadline LIMIT 1) IS NOT NULL,
  (SELECT true FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 4
   ORDER BY g.queue, g.fsm, g.fsm_version, g.aside_step LIMIT 1) IS NOT NULL,
  (SELECT true FROM "gendurable".gen_durable x WHERE (x.losers IS NOT NULL AND (x.status <> 'awaiting_children' OR x.losers[1] <> x.round)
    OR x.graphs IS NOT NULL AND x.finished_at IS NOT NULL) ORDER BY x.id LIMIT 1) IS NOT NULL,
  (SELECT true FROM "gendurable".gen_durable x WHERE x.status = 'runnable' AND NOT x.paused AND x.pick_lane = 5 ORDER BY x.id LIMIT 1) IS NOT NULL
