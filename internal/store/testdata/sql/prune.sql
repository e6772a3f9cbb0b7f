WITH RECURSIVE c AS MATERIALIZED (SELECT clock_timestamp() AS now, pg_try_advisory_xact_lock($5::bigint) AS alone),
page AS MATERIALIZED (SELECT g.id, g.parent_id, g.parent_round FROM "gendurable".gen_durable g
  WHERE g.id = ANY($4::bigint[]) AND g.parent_id IS NOT NULL AND (SELECT alone FROM c)),
up AS (SELECT page.id, p.id AS top, p.parent_id, p.parent_round, p.failed, 1 AS level FROM page
    CROSS JOIN LATERAL (SELECT p.id, p.parent_id, p.parent_round, p.status = 'failed' AS failed FROM "gendurable".gen_durable p
      WHERE p.id = page.parent_id AND p.round = page.parent_round OFFSET 0) p
  UNION ALL SELECT up.id, p.id, p.parent_id, p.parent_round, p.failed, up.level + 1 FROM up
    CROSS JOIN LATERAL (SELECT p.id, p.parent_id, p.parent_round, p.status = 'failed' AS failed FROM "gendurable".gen_durable p
      WHERE p.id = up.parent_id AND p.round = up.parent_round OFFSET 0) p),
tops AS MATERIALIZED (SELECT DISTINCT ON (up.id) up.id, up.top FROM up WHERE up.failed ORDER BY up.id, up.level DESC),
spared AS MATERIALIZED (SELECT t.top FROM (SELECT DISTINCT tops.top FROM tops) t WHERE EXISTS (WITH RECURSIVE down AS (
    SELECT k.id, k.finished_at, k.status, k.failure, k.retain FROM "gendurable".gen_durable k WHERE k.parent_id = t.top
    UNION ALL SELECT k.* FROM down CROSS JOIN LATERAL (SELECT k.id, k.finished_at, k.status, k.failure, k.retain
      FROM "gendurable".gen_durable k WHERE k.parent_id = down.id OFFSET 0) k)
  SELECT FROM down WHERE NOT coalesce(down.finished_at < (SELECT now FROM c) - CASE WHEN coalesce(CASE WHEN down.status = 'done'::"gendurable".durable_status THEN down.retain[1] WHEN down.failure = 'cancelled' AND down.retain[3] >= 0 THEN down.retain[3] ELSE down.retain[2] END, -1) >= 0 THEN least(CASE WHEN down.status = 'done'::"gendurable".durable_status THEN down.retain[1] WHEN down.failure = 'cancelled' AND down.retain[3] >= 0 THEN down.retain[3] ELSE down.retain[2] END, 3162240000000000)
    WHEN down.status = 'done' THEN $1::bigint WHEN down.failure = 'cancelled' THEN $3::bigint ELSE $2::bigint END * interval '1 microsecond', false))),
l AS MATERIALIZED (
  SELECT g.id FROM "gendurable".gen_durable g WHERE g.id = ANY($4::bigint[]) AND (SELECT alone FROM c) AND 
  g.finished_at < (SELECT now FROM c) - CASE WHEN coalesce(CASE WHEN g.status = 'done'::"gendurable".durable_status THEN g.retain[1] WHEN g.failure = 'cancelled' AND g.retain[3] >= 0 THEN g.retain[3] ELSE g.retain[2] END, -1) >= 0 THEN least(CASE WHEN g.status = 'done'::"gendurable".durable_status THEN g.retain[1] WHEN g.failure = 'cancelled' AND g.retain[3] >= 0 THEN g.retain[3] ELSE g.retain[2] END, 3162240000000000)
    WHEN g.status = 'done' THEN $1::bigint WHEN g.failure = 'cancelled' THEN $3::bigint ELSE $2::bigint END * interval '1 microsecond'
  AND (g.parent_id IS NULL OR NOT EXISTS (WITH RECURSIVE up AS (
    SELECT p.parent_id, p.parent_round, p.finished_at, p.status, p.failure, p.retain
    FROM "gendurable".gen_durable p WHERE p.id = g.parent_id AND p.round = g.parent_round
    UNION ALL SELECT q.* FROM up CROSS JOIN LATERAL (SELECT p.parent_id, p.parent_round, p.finished_at, p.status, p.failure, p.retain
      FROM "gendurable".gen_durable p WHERE p.id = up.parent_id AND p.round = up.parent_round OFFSET 0) q)
    SELECT FROM up WHERE NOT coalesce(up.finished_at < (SELECT now FROM c) - CASE WHEN coalesce(CASE WHEN up.status = 'done'::"gendurable".durable_status THEN up.retain[1] WHEN up.failure = 'cancelled' AND up.retain[3] >= 0 THEN up.retain[3] ELSE up.retain[2] END, -1) >= 0 THEN least(CASE WHEN up.status = 'done'::"gendurable".durable_status THEN up.retain[1] WHEN up.failure = 'cancelled' AND up.retain[3] >= 0 THEN up.retain[3] ELSE up.retain[2] END, 3162240000000000)
    WHEN up.status = 'done' THEN $1::bigint WHEN up.failure = 'cancelled' THEN $3::bigint ELSE $2::bigint END * interval '1 microsecond', false)))
  AND (g.node IS NULL OR NOT EXISTS (SELECT FROM "gendurable".edges e
    CROSS JOIN LATERAL (SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = e.to_id AND x.visit = 0 AND x.finished_at IS NULL OFFSET 0) x
    WHERE e.from_id = g.id))
    AND NOT EXISTS (SELECT FROM "gendurable".gen_durable k WHERE k.parent_id = g.id OFFSET 0)
    AND g.id <> ALL(ARRAY(SELECT page.id FROM page WHERE EXISTS (SELECT FROM tops JOIN spared ON spared.top = tops.top WHERE tops.id = page.id)))
  ORDER BY g.id FOR UPDATE SKIP LOCKED),
d AS (DELETE FROM "gendurable".gen_durable g WHERE g.id = ANY(ARRAY(SELECT l.id FROM l)) RETURNING g.id, g.node),
e AS (DELETE FROM "gendurable".edges e WHERE e.from_id = ANY(ARRAY(SELECT d.id FROM d WHERE d.node IS NOT NULL)))
SELECT c.alone, (SELECT count(*) FROM d),
  (SELECT count(*) FROM "gendurable".signals s WHERE s.target_id = ANY(ARRAY(SELECT l.id FROM l)) AND s.consumed_at IS NULL) FROM c
