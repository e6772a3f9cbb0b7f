WITH RECURSIVE level(p, at, id) AS (
  SELECT -32769, '-infinity'::timestamptz, 0::bigint
  UNION ALL
  SELECT n.* FROM level CROSS JOIN LATERAL (
    SELECT * FROM (
      (SELECT g.priority::int AS p, g.eligible_at, g.id FROM "gendurable".gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND g.priority > level.p AND g.priority < $7::int
       ORDER BY g.priority, g.eligible_at, g.id LIMIT 1)
      UNION ALL
      (SELECT g.priority::int, g.eligible_at, g.id FROM "gendurable".gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND (g.priority, g.eligible_at, g.id) >
         (greatest(level.p, $7::int), CASE WHEN level.p < $7::int THEN $8::timestamptz ELSE 'infinity' END, $9::bigint)
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
      (g.fsm || '/' || g.fsm_version) = ANY($4::text[]) AS known
    FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
      AND g.priority = level.p AND (g.eligible_at, g.id) >= (level.at, level.id) AND g.eligible_at <= statement_timestamp()
    ORDER BY g.eligible_at, g.id LIMIT 1000 FOR NO KEY UPDATE OF g SKIP LOCKED) r LIMIT 1000) z LIMIT $2) front
  UNION ALL
  SELECT r.* FROM aside CROSS JOIN LATERAL (SELECT * FROM (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane, true AS known
    FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2
      AND g.fsm = aside.f AND g.fsm_version = aside.v AND g.eligible_at <= statement_timestamp()
    ORDER BY g.priority, g.eligible_at, g.id LIMIT 1000 FOR NO KEY UPDATE OF g SKIP LOCKED) q LIMIT $2) r
  WHERE (aside.f || '/' || aside.v) = ANY($4::text[])),
todo AS MATERIALIZED (
  SELECT tid, id, act, row_number() OVER (PARTITION BY act ORDER BY priority, eligible_at, id) AS n, priority, eligible_at FROM (
    SELECT w.*, CASE WHEN w.known THEN 0 ELSE 2 END AS act FROM seen w) s
  WHERE NOT EXISTS (SELECT FROM seen WHERE partition_key IS NOT NULL)),
moved AS (
  UPDATE "gendurable".gen_durable g SET
    status = CASE WHEN t.act = 0 THEN 'executing' ELSE g.status END,
    pick_lane = CASE t.act WHEN 1 THEN 1 WHEN 2 THEN 2 WHEN 4 THEN 1 ELSE 0 END,
    locked_by = CASE WHEN t.act = 0 THEN $3::text END,
    lease_expires_at = CASE WHEN t.act = 0 THEN (SELECT clock_timestamp()) + $6::bigint * interval '1 microsecond' END,
    claim_token = CASE WHEN t.act = 0 THEN nextval('"gendurable".gen_durable_token') ELSE g.claim_token END,
    updated_at = CASE WHEN t.act = 0 THEN statement_timestamp() ELSE g.updated_at END
  FROM todo t WHERE g.ctid = t.tid AND (t.act > 0 OR t.n <= $5)
  RETURNING t.act, g.id, g.awaits IS NOT NULL AS awaits, g.fsm, g.fsm_version, NULL AS unsettled, NULL::bigint AS fencing_token),
sum AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE act = 0) AS claimed, count(*) FILTER (WHERE act > 0) AS moved,
    array_agg(id) FILTER (WHERE act = 0) AS ids, array_agg(id) FILTER (WHERE act = 0 AND awaits) AS awaiting,
    array_agg(ARRAY[id, fencing_token]) FILTER (WHERE fencing_token IS NOT NULL) AS fencing,
    array_agg(unsettled) FILTER (WHERE unsettled IS NOT NULL) AS unsettled FROM moved)
SELECT length(set_config('gendurable.claimed', coalesce(sum.ids::text, '{}'), false) ||
    set_config('gendurable.awaiting', coalesce(sum.awaiting::text, '{}'), false) ||
    set_config('gendurable.fencing', coalesce(sum.fencing::text, '{}'), false) ||
    set_config('gendurable.unsettled', coalesce(sum.unsettled::text, '{}'), false)),
  sum.moved, 0,
  ARRAY(SELECT DISTINCT m.fsm || '/' || m.fsm_version FROM moved m WHERE m.act = 2 LIMIT 50),
  CASE WHEN sum.claimed < $5 THEN (
    SELECT (extract(epoch FROM min(n.eligible_at) - (SELECT clock_timestamp())) * 1000000)::bigint
    FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN LATERAL (
      SELECT g.eligible_at FROM "gendurable".gen_durable g
      WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
        AND g.priority = level.p AND g.eligible_at > statement_timestamp()
      ORDER BY g.eligible_at LIMIT 1) n) END, (date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
  sum.claimed, l.priority, l.eligible_at, l.id, EXISTS (SELECT FROM seen WHERE partition_key IS NOT NULL)
FROM sum LEFT JOIN todo l ON l.act = 0 AND l.n = sum.claimed
