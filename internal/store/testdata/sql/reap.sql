WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
expired AS MATERIALIZED (
  SELECT x.ctid AS tid, x.parent_id, coalesce(x.locked_by, '') AS worker, x.claim_token AS token, coalesce(m.most > 0 AND x.crashes >= m.most, false) AS over
  FROM "gendurable".gen_durable x LEFT JOIN unnest($3::text[], $4::int[]) AS m(machine, most) ON m.machine = x.fsm || '/' || x.fsm_version
  CROSS JOIN LATERAL (SELECT NOT (coalesce(m.most > 0 AND x.crashes >= m.most, false)) OR x.parent_id IS NULL
    OR ((SELECT true FROM "gendurable".gen_durable f WHERE f.id = x.parent_id FOR NO KEY UPDATE SKIP LOCKED) IS NOT NULL
      OR (SELECT gone.id FROM "gendurable".gen_durable gone WHERE gone.id = x.parent_id) IS NULL)
      AND (x.node IS NULL OR NOT EXISTS (SELECT n.id FROM unnest(ARRAY[x.id]) AS n(id)
  CROSS JOIN LATERAL (SELECT e.to_id FROM "gendurable".edges e WHERE e.from_id = n.id OFFSET 0) e
  CROSS JOIN LATERAL (SELECT coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) AS waits FROM "gendurable".gen_durable x WHERE x.id = e.to_id OFFSET 0) t
  LEFT JOIN LATERAL (SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = e.to_id AND coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) FOR NO KEY UPDATE SKIP LOCKED) l ON true
  WHERE t.waits AND l.id IS NULL)) AS open OFFSET 0) p
  WHERE x.status = 'executing' AND x.lease_expires_at < (SELECT now FROM c) AND p.open
    AND x.id <> ALL($5::bigint[])
  ORDER BY x.lease_expires_at LIMIT $1 FOR NO KEY UPDATE OF x SKIP LOCKED)
UPDATE "gendurable".gen_durable g SET
  status = CASE WHEN e.over THEN 'failed'::"gendurable".durable_status ELSE 'runnable' END,
  pick_lane = 0, gate = NULL, place = NULL, seat = NULL, locked_by = NULL, lease_expires_at = NULL,
  attempt = least(g.attempt, 2147483646) + 1,
  crashes = least(g.crashes, 2147483646) + 1,
  eligible_at = CASE WHEN e.over OR g.crashes = 0 THEN g.eligible_at
    ELSE (SELECT now FROM c) + least(300, power(2, least(g.crashes - 1, 20))) * interval '1 s' END,
  failure = CASE WHEN e.over THEN 'crashes' END,
  last_error = CASE WHEN e.over THEN 'lost its worker ' || (least(g.crashes, 2147483646) + 1) || ' times at step ' || g.step || ': over the crash limit' ELSE g.last_error END,
  errors = coalesce(jsonb_path_query_array(CASE WHEN jsonb_typeof(g.errors) = 'array' THEN g.errors END, '$[last - 18 to last]'), '[]')
    || jsonb_build_object('step', g.step, 'visit', g.visit, 'attempt', g.attempt, 'at', (SELECT now FROM c), 'kind', 'crash', 'worker', g.locked_by,
    'error', CASE WHEN e.over THEN left('lost its worker ' || (least(g.crashes, 2147483646) + 1) || ' times at step ' || g.step || ': over the crash limit', 1024) ELSE 'lost its worker' END),
  finished_at = CASE WHEN e.over THEN (SELECT now FROM c) END,
  joined = CASE WHEN e.over AND g.parent_id IS NOT NULL AND g.joined IS NULL THEN $2::uuid ELSE g.joined END,
  commit_id = CASE WHEN e.over THEN $2::uuid ELSE g.commit_id END,
  updated_at = (SELECT now FROM c)
FROM expired e
WHERE g.ctid = e.tid AND (SELECT count(*) FROM expired) > 0
RETURNING g.id, g.queue, g.partition_key, e.worker, e.token, e.over, e.parent_id IS NOT NULL, g.node IS NOT NULL,
  g.parent_round < 0
