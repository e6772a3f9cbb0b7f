WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
lost AS MATERIALIZED (
  SELECT x.ctid AS tid, x.id FROM "gendurable".gen_durable x CROSS JOIN LATERAL (SELECT NOT (true) OR x.parent_id IS NULL
    OR ((SELECT true FROM "gendurable".gen_durable f WHERE f.id = x.parent_id FOR NO KEY UPDATE SKIP LOCKED) IS NOT NULL
      OR (SELECT gone.id FROM "gendurable".gen_durable gone WHERE gone.id = x.parent_id) IS NULL)
      AND (x.node IS NULL OR NOT EXISTS (SELECT n.id FROM unnest(ARRAY[x.id]) AS n(id)
  CROSS JOIN LATERAL (SELECT e.to_id FROM "gendurable".edges e WHERE e.from_id = n.id OFFSET 0) e
  CROSS JOIN LATERAL (SELECT coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) AS waits FROM "gendurable".gen_durable x WHERE x.id = e.to_id OFFSET 0) t
  LEFT JOIN LATERAL (SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = e.to_id AND coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) FOR NO KEY UPDATE SKIP LOCKED) l ON true
  WHERE t.waits AND l.id IS NULL)) AS open OFFSET 0) p
  WHERE x.status = 'runnable' AND NOT x.paused AND x.pick_lane = 5 AND x.id > $4 AND p.open AND x.id = ANY($3::bigint[])
  ORDER BY x.id LIMIT $1 FOR NO KEY UPDATE OF x SKIP LOCKED),
h AS (UPDATE "gendurable".gen_durable g SET status = 'failed', failure = 'skipped', last_error = e.text, finished_at = (SELECT now FROM c),
  pick_lane = 0, gate = NULL, place = NULL, seat = NULL,
  joined = CASE WHEN g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, 'at', (SELECT now FROM c), 'kind', 'fail', 'error', left(e.text, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT now FROM c)
FROM (SELECT l.tid, 'skipped: ' || coalesce((SELECT 'node ' || to_json(left(o.node, 80)) || ' is ' || o.status
    FROM (SELECT e.from_id, e.needs FROM "gendurable".edges e WHERE e.to_id = l.id OFFSET 0) e
    CROSS JOIN LATERAL (SELECT x.node, x.status FROM "gendurable".gen_durable x WHERE x.id = e.from_id OFFSET 0) o
    WHERE e.needs < 3 AND o.status IN ('done', 'failed')
      AND e.needs <> 1 AND (e.needs = 0) <> (o.status = 'done')
    ORDER BY e.from_id LIMIT 1),
  (SELECT 'too few of a quorum are done: ' || 'node ' || to_json(left(o.node, 80)) || ' is ' || o.status
    FROM (SELECT e.from_id, e.needs FROM "gendurable".edges e WHERE e.to_id = l.id OFFSET 0) e
    CROSS JOIN LATERAL (SELECT x.node, x.status FROM "gendurable".gen_durable x WHERE x.id = e.from_id OFFSET 0) o
    WHERE e.needs = 3 AND o.status IN ('done', 'failed')
      AND o.status = 'failed'
    ORDER BY e.from_id LIMIT 1),
  'a node that it waited for, which has been deleted since, did not end as it had to') AS text FROM lost l OFFSET 0) e
WHERE g.ctid = e.tid AND (SELECT count(*) FROM lost) > 0
RETURNING g.id, g.partition_key AS key, g.parent_round < 0 AS streamed, g.updated_at AS at, g.visit, g.attempt AS attempt, g.fsm_version, g.fsm, g.step,
  NULL::text AS lost, g.failure, g.last_error AS err),
w AS (INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT h.at, h.id, h.visit, NULL, NULL, h.attempt, h.fsm_version, 'node.skip', CASE WHEN h.lost ~ '^[0-9a-f-]{36}$' THEN h.lost::uuid END,
    h.fsm, h.step, NULL, h.failure, left(h.err, 1024), NULL
  FROM h JOIN "gendurable".recorded_machines r ON r.machine = h.fsm)
SELECT id, key, streamed FROM h
