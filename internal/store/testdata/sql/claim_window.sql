WITH RECURSIVE level(p, at, id) AS (
  SELECT -32769, '-infinity'::timestamptz, 0::bigint
  UNION ALL
  SELECT n.* FROM level CROSS JOIN LATERAL (
    SELECT * FROM (
      (SELECT g.priority::int AS p, g.eligible_at, g.id FROM "gendurable".gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND g.priority > level.p AND g.priority < $4::int
       ORDER BY g.priority, g.eligible_at, g.id LIMIT 1)
      UNION ALL
      (SELECT g.priority::int, g.eligible_at, g.id FROM "gendurable".gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND (g.priority, g.eligible_at, g.id) >
         (greatest(level.p, $4::int), CASE WHEN level.p < $4::int THEN $5::timestamptz ELSE 'infinity' END, $6::bigint)
       ORDER BY g.priority, g.eligible_at, g.id LIMIT 1)) c
    ORDER BY 1, 2, 3 LIMIT 1) n),
aside(f, v) AS (
  (SELECT g.fsm, g.fsm_version FROM "gendurable".gen_durable g
   WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2 ORDER BY g.fsm, g.fsm_version LIMIT 1)
  UNION ALL
  SELECT n.fsm, n.fsm_version FROM aside CROSS JOIN LATERAL (
    SELECT g.fsm, g.fsm_version FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2
      AND (g.fsm, g.fsm_version) > (aside.f, aside.v) ORDER BY g.fsm, g.fsm_version LIMIT 1) n),
seen AS MATERIALIZED (SELECT * FROM (SELECT * FROM (
  SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN LATERAL (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane,
      (g.fsm || '/' || g.fsm_version) = ANY($3::text[]) AS known
    FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
      AND g.priority = level.p AND (g.eligible_at, g.id) >= (level.at, level.id) AND g.eligible_at <= statement_timestamp()
    AND g.id <> ALL($7::bigint[]) ORDER BY g.eligible_at, g.id LIMIT 1000) r LIMIT 1000) z LIMIT $2) front
  UNION ALL
  SELECT r.* FROM aside CROSS JOIN LATERAL (SELECT * FROM (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane, true AS known
    FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2
      AND g.fsm = aside.f AND g.fsm_version = aside.v AND g.eligible_at <= statement_timestamp()
    AND g.id <> ALL($7::bigint[]) ORDER BY g.priority, g.eligible_at, g.id LIMIT 1000) q LIMIT $2) r
  WHERE (aside.f || '/' || aside.v) = ANY($3::text[]))
SELECT w.id FROM seen w ORDER BY w.priority, w.eligible_at, w.id
