WITH p AS MATERIALIZED (
  SELECT x.*, row_number() OVER () AS n FROM (
    (SELECT g.id, g.queue, g.gate, g.priority, g.eligible_at FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.queue = $1 AND g.gate = $2 AND (g.priority, g.eligible_at, g.id) > ($3::bigint, $4::timestamptz, $5::bigint) ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT $6::bigint)
    UNION ALL (SELECT g.id, g.queue, g.gate, g.priority, g.eligible_at FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.queue = $1 AND g.gate ~>~ $2 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT $6::bigint)
    UNION ALL (SELECT g.id, g.queue, g.gate, g.priority, g.eligible_at FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.queue > $1 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT $6::bigint)) x LIMIT $6::bigint),
l AS MATERIALIZED (
  SELECT x.tid, x.now_at FROM (
    SELECT g.ctid AS tid, g.gate, (SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM "gendurable".gates r
      WHERE (r.run AND g.run_gate IS NULL OR NOT r.run AND NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)) AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1) AS now_at FROM "gendurable".gen_durable g WHERE g.id = ANY(ARRAY(
      SELECT g.id FROM "gendurable".gen_durable g JOIN p ON p.id = g.id WHERE g.gate IS DISTINCT FROM (SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM "gendurable".gates r
      WHERE (r.run AND g.run_gate IS NULL OR NOT r.run AND NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)) AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1))) AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3
    FOR NO KEY UPDATE OF g SKIP LOCKED) x
  WHERE x.gate IS DISTINCT FROM x.now_at),
m AS (
  UPDATE "gendurable".gen_durable g SET gate = l.now_at, pick_lane = CASE WHEN l.now_at IS NULL THEN 0 ELSE 3 END FROM l WHERE g.ctid = l.tid RETURNING g.queue)
SELECT (SELECT count(*) FROM p), (SELECT coalesce(array_agg(DISTINCT m.queue), '{}') FROM m), p.queue, p.gate, p.priority, p.eligible_at, p.id
FROM p ORDER BY p.n DESC LIMIT 1
