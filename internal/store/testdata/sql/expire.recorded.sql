WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
overdue AS MATERIALIZED (
  SELECT x.ctid AS tid, x.parent_id, x.status, 'over its deadline of ' || to_char(x.deadline AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
    || ' at step ' || x.step || ', ' || x.status || CASE WHEN x.paused THEN ', paused' ELSE '' END AS text
  FROM "gendurable".gen_durable x CROSS JOIN LATERAL (SELECT NOT (true) OR x.parent_id IS NULL
    OR ((SELECT true FROM "gendurable".gen_durable f WHERE f.id = x.parent_id FOR NO KEY UPDATE SKIP LOCKED) IS NOT NULL
      OR (SELECT gone.id FROM "gendurable".gen_durable gone WHERE gone.id = x.parent_id) IS NULL)
      AND (x.node IS NULL OR NOT EXISTS (SELECT n.id FROM unnest(ARRAY[x.id]) AS n(id)
  CROSS JOIN LATERAL (SELECT e.to_id FROM "gendurable".edges e WHERE e.from_id = n.id OFFSET 0) e
  CROSS JOIN LATERAL (SELECT coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) AS waits FROM "gendurable".gen_durable x WHERE x.id = e.to_id OFFSET 0) t
  LEFT JOIN LATERAL (SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = e.to_id AND coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) FOR NO KEY UPDATE SKIP LOCKED) l ON true
  WHERE t.waits AND l.id IS NULL)) AS open OFFSET 0) p
  WHERE x.deadline <= (SELECT now FROM c) AND x.finished_at IS NULL AND coalesce(x.status <> 'executing', false) AND p.open AND x.id <> ALL($3::bigint[])
  ORDER BY x.deadline LIMIT $1 FOR NO KEY UPDATE OF x SKIP LOCKED),
h AS (UPDATE "gendurable".gen_durable g SET status = 'failed', failure = 'deadline', last_error = e.text, finished_at = (SELECT now FROM c),
  pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL, await_deadline = NULL,
  joined = CASE WHEN g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  errors = coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, 'at', (SELECT now FROM c), 'kind', 'deadline', 'error', left(e.text, 1024)),
  commit_id = $2::uuid, updated_at = (SELECT now FROM c)
FROM overdue e
WHERE g.ctid = e.tid AND (SELECT count(*) FROM overdue) > 0
RETURNING g.id, CASE WHEN e.status = 'runnable' THEN g.partition_key END AS key, e.parent_id IS NOT NULL AS child,
  g.node IS NOT NULL AS node, g.parent_round < 0 AS streamed, g.updated_at AS at, g.visit, g.attempt AS attempt, g.fsm_version, g.fsm, g.step,
  NULL::text AS lost, g.failure, g.last_error AS err),
w AS (INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT h.at, h.id, h.visit, NULL, NULL, h.attempt, h.fsm_version, 'deadline', CASE WHEN h.lost ~ '^[0-9a-f-]{36}$' THEN h.lost::uuid END,
    h.fsm, h.step, NULL, h.failure, left(h.err, 1024), NULL
  FROM h JOIN "gendurable".recorded_machines r ON r.machine = h.fsm)
SELECT id, key, child, node, streamed FROM h
