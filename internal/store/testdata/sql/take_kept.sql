WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
t AS MATERIALIZED (
  SELECT g.id, g.correlation_guard AS key, coalesce(g.status IN ('awaiting_signal', 'awaiting_children'), false) AS awaiting, g.awaits, g.inserted_at
  FROM "gendurable".gen_durable g WHERE g.correlation_guard = ANY($1::text[]) AND g.status NOT IN ('done', 'failed') ORDER BY g.id FOR NO KEY UPDATE SKIP LOCKED),
l AS MATERIALIZED (
  SELECT k.id, t.id AS target FROM "gendurable".kept_signals k JOIN t ON k.key = t.key AND k.expires_at > t.inserted_at
  ORDER BY k.id FOR UPDATE OF k SKIP LOCKED),
k AS (
  DELETE FROM "gendurable".kept_signals k USING l WHERE k.id = l.id
  RETURNING k.id, l.target, k.name, k.payload, k.dedup_key, k.trace, k.inserted_at),
s AS (
  INSERT INTO "gendurable".signals (target_id, name, payload, dedup_key, trace, inserted_at)
  SELECT k.target, k.name, k.payload, k.dedup_key, k.trace, k.inserted_at FROM k ORDER BY k.id
  ON CONFLICT (target_id, dedup_key) DO NOTHING RETURNING target_id, name)
UPDATE "gendurable".gen_durable g SET status = 'runnable', eligible_at = (SELECT now FROM c), await_deadline = NULL, pick_lane = 0,
  updated_at = (SELECT now FROM c)
FROM t WHERE g.id = t.id AND t.awaiting AND (SELECT true FROM s WHERE s.target_id = t.id AND s.name = ANY(t.awaits) LIMIT 1)
RETURNING g.queue
