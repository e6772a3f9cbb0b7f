WITH RECURSIVE allow AS MATERIALIZED (SELECT s.*, greatest(0, least($5::bigint, coalesce(cardinality(s.seats), $5::bigint)) - s.had) AS want
  FROM (SELECT clock_timestamp() AS now, nullif(current_setting('gendurable.seats'), '')::int[] AS seats,
    cardinality(current_setting('gendurable.claimed')::bigint[]) AS had) s),
o AS MATERIALIZED (SELECT count(*) = 1 AS alone, min(r.name) AS name, min(r.queue) AS queue, min(r.machine) AS machine, min(r.step) AS step,
    min(r.label) AS label, bool_or(r.run) AS run
  FROM "gendurable".gates r WHERE NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)),
level(p, at, id) AS (
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
  SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN o CROSS JOIN LATERAL (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane,
      (g.fsm || '/' || g.fsm_version) = ANY($4::text[]) AS known,
      CASE WHEN o.alone THEN CASE WHEN (NOT o.run OR g.run_gate IS NULL) AND coalesce(o.queue = g.queue, true)
        AND coalesce(o.machine = g.fsm, true) AND coalesce(o.step = g.step, true) AND (o.label IS NULL OR g.labels ->> o.label IS NOT NULL)
      THEN o.name || CASE WHEN o.label IS NULL THEN '' ELSE '/' || left(g.labels ->> o.label, 256) END END ELSE (SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM "gendurable".gates r
      WHERE (r.run AND g.run_gate IS NULL OR NOT r.run AND NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)) AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1) END AS gate
    FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
      AND g.priority = level.p AND (g.eligible_at, g.id) >= (level.at, level.id) AND g.eligible_at <= statement_timestamp()
    AND g.id <> ALL($11::bigint[]) ORDER BY g.eligible_at, g.id LIMIT 1000 FOR NO KEY UPDATE OF g SKIP LOCKED) r LIMIT 1000) z LIMIT $2) front
  UNION ALL
  SELECT r.* FROM aside CROSS JOIN o CROSS JOIN LATERAL (SELECT * FROM (
    SELECT g.ctid AS tid, g.id, g.priority, g.eligible_at, g.partition_key, g.pick_lane, true AS known,
      CASE WHEN o.alone THEN CASE WHEN (NOT o.run OR g.run_gate IS NULL) AND coalesce(o.queue = g.queue, true)
        AND coalesce(o.machine = g.fsm, true) AND coalesce(o.step = g.step, true) AND (o.label IS NULL OR g.labels ->> o.label IS NOT NULL)
      THEN o.name || CASE WHEN o.label IS NULL THEN '' ELSE '/' || left(g.labels ->> o.label, 256) END END ELSE (SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM "gendurable".gates r
      WHERE (r.run AND g.run_gate IS NULL OR NOT r.run AND NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)) AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1) END AS gate
    FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 2
      AND g.fsm = aside.f AND g.fsm_version = aside.v AND g.eligible_at <= statement_timestamp()
    AND g.id <> ALL($11::bigint[]) ORDER BY g.priority, g.eligible_at, g.id LIMIT 1000 FOR NO KEY UPDATE OF g SKIP LOCKED) q LIMIT $2) r
  WHERE (aside.f || '/' || aside.v) = ANY($4::text[])),
keyed AS MATERIALIZED (
  SELECT DISTINCT ON (partition_key) partition_key AS k, id AS first
  FROM seen WHERE partition_key IS NOT NULL ORDER BY partition_key, priority, eligible_at, id),
probe AS MATERIALIZED (
  SELECT k, first, b.id AS busy, h.id AS head FROM keyed
  LEFT JOIN LATERAL (SELECT g.id FROM "gendurable".gen_durable g WHERE g.partition_key = k AND g.status = 'executing' LIMIT 1) b ON true
  LEFT JOIN LATERAL (
    SELECT f.id, f.pick_lane FROM (
      SELECT g.id, g.pick_lane, g.eligible_at FROM "gendurable".gen_durable g
      WHERE g.partition_key = k AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused
      ORDER BY g.priority, g.eligible_at, g.id LIMIT 1) f
    WHERE f.eligible_at <= statement_timestamp()
    UNION ALL
    SELECT r.id, r.pick_lane FROM (
      WITH RECURSIVE level(p) AS (
        (SELECT g.priority FROM "gendurable".gen_durable g
         WHERE g.partition_key = k AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused
         ORDER BY g.priority LIMIT 1)
        UNION ALL
        SELECT (SELECT g.priority FROM "gendurable".gen_durable g
          WHERE g.partition_key = k AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.priority > level.p
          ORDER BY g.priority LIMIT 1)
        FROM level WHERE level.p IS NOT NULL)
      SELECT h.id, h.pick_lane FROM level CROSS JOIN LATERAL (
        SELECT g.id, g.pick_lane FROM "gendurable".gen_durable g
        WHERE g.partition_key = k AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused
          AND g.priority = level.p AND g.eligible_at <= statement_timestamp()
        ORDER BY g.eligible_at, g.id LIMIT 1) h
      WHERE level.p IS NOT NULL LIMIT 1) r
    LIMIT 1) h ON b.id IS NULL),
held AS MATERIALIZED (
  SELECT a.id, a.ctid AS tid, a.pick_lane, a.status, a.priority, a.eligible_at FROM "gendurable".gen_durable a
  WHERE a.id = ANY(ARRAY(SELECT coalesce(busy, head) FROM probe WHERE busy IS NOT NULL OR head <> first))
    AND (a.status = 'executing' OR a.status = 'runnable' AND NOT a.paused AND a.eligible_at <= statement_timestamp())
  FOR NO KEY UPDATE OF a SKIP LOCKED),
todo AS MATERIALIZED (
  SELECT tid, id, partition_key, act, gate, row_number() OVER (PARTITION BY act ORDER BY priority, eligible_at, id) AS n, priority, eligible_at FROM (
    SELECT w.tid, w.id, w.partition_key, w.priority, w.eligible_at, w.gate,
      CASE WHEN NOT w.known THEN 2
           WHEN w.partition_key IS NULL OR p.busy IS NULL AND p.head = w.id THEN CASE WHEN w.gate IS NULL THEN 0 ELSE 5 END
           WHEN w.id <> p.first OR a.status = 'executing'
             OR (a.priority, a.eligible_at, a.id) < (w.priority, w.eligible_at, w.id) THEN 1
           WHEN a.id IS NULL AND coalesce(p.busy, p.head) IS NOT NULL THEN 4 END AS act
    FROM seen w LEFT JOIN probe p ON p.k = w.partition_key LEFT JOIN held a ON a.id = coalesce(p.busy, p.head)) s
  WHERE act IS NOT NULL
  ORDER BY partition_key),
moved AS (
  UPDATE "gendurable".gen_durable g SET
    status = CASE WHEN t.act = 0 THEN 'executing' ELSE g.status END,
    pick_lane = CASE t.act WHEN 1 THEN 1 WHEN 2 THEN 2 WHEN 4 THEN 1 WHEN 5 THEN 3 ELSE 0 END, gate = CASE t.act WHEN 5 THEN t.gate END, place = NULL,
    seat = CASE WHEN t.act = 0 THEN (SELECT seats FROM allow)[(SELECT had FROM allow) + t.n] END,
    locked_by = CASE WHEN t.act = 0 THEN $3::text END,
    lease_expires_at = CASE WHEN t.act = 0 THEN (SELECT clock_timestamp()) + $6::bigint * interval '1 microsecond' END,
    claim_token = CASE WHEN t.act = 0 THEN "gendurable".gen_durable_draw('"gendurable".gen_durable_token') ELSE g.claim_token END,
    updated_at = CASE WHEN t.act = 0 THEN statement_timestamp() ELSE g.updated_at END
  FROM todo t WHERE g.ctid = t.tid AND (t.act > 0 OR t.n <= (SELECT want FROM allow)) AND (t.act <> 4 OR $10::bool)
  RETURNING t.act, g.id, g.awaits IS NOT NULL AS awaits, g.fsm, g.fsm_version, CASE WHEN t.act = 4 THEN g.partition_key END AS unsettled,
    CASE WHEN t.act = 0 AND g.partition_key IS NOT NULL THEN "gendurable".gen_durable_draw('"gendurable".gen_durable_token') END AS fencing_token),
sum AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE act = 0) AS claimed, count(*) FILTER (WHERE act > 0) AS moved,
    array_agg(id) FILTER (WHERE act = 0) AS ids, array_agg(id) FILTER (WHERE act = 0 AND awaits) AS awaiting,
    array_agg(ARRAY[id, fencing_token]) FILTER (WHERE fencing_token IS NOT NULL) AS fencing,
    array_agg(unsettled) FILTER (WHERE unsettled IS NOT NULL)
      || ARRAY(SELECT p.k FROM probe p JOIN held h ON h.id = p.head WHERE h.pick_lane = 1) AS unsettled FROM moved)
SELECT length(set_config('gendurable.claimed', (current_setting('gendurable.claimed')::bigint[] || coalesce(sum.ids, '{}'))::text, false) ||
    set_config('gendurable.awaiting', (current_setting('gendurable.awaiting')::bigint[] || coalesce(sum.awaiting, '{}'))::text, false) ||
    set_config('gendurable.fencing', (current_setting('gendurable.fencing')::bigint[] || coalesce(sum.fencing, '{}'))::text, false) ||
    set_config('gendurable.unsettled', coalesce(sum.unsettled::text, '{}'), false)),
  sum.moved, (SELECT count(*) FROM todo b WHERE b.act = 4 AND NOT $10::bool),
  ARRAY(SELECT DISTINCT m.fsm || '/' || m.fsm_version FROM moved m WHERE m.act = 2 LIMIT 50),
  CASE WHEN sum.claimed < $5 THEN (
    SELECT (extract(epoch FROM min(n.eligible_at) - (SELECT clock_timestamp())) * 1000000)::bigint
    FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN LATERAL (
      SELECT g.eligible_at FROM "gendurable".gen_durable g
      WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
        AND g.priority = level.p AND g.eligible_at > statement_timestamp()
      ORDER BY g.eligible_at LIMIT 1) n) END, (date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
  sum.claimed, l.priority, l.eligible_at, l.id, EXISTS (SELECT FROM keyed),
  (SELECT array_agg(e.gate) FROM todo e WHERE e.act = 5)
FROM sum LEFT JOIN todo l ON l.act = 0 AND l.n = sum.claimed
