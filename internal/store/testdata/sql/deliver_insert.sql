
WITH seen AS MATERIALIZED (
  SELECT t.id,
    EXISTS (SELECT FROM "gendurable".signals d WHERE d.target_id = t.id AND d.dedup_key = $3::text) AS duplicate,
    (SELECT count(*) FROM (SELECT FROM "gendurable".signals i WHERE i.target_id = t.id AND i.consumed_at IS NULL LIMIT $4::bigint) n) >= $4::bigint AS full
  FROM (SELECT nullif(current_setting('gendurable.target'), '')::bigint AS id) t),
sent AS (
  INSERT INTO "gendurable".signals (target_id, name, payload, dedup_key, trace)
  SELECT seen.id, $1::text, $2::jsonb, $3::text, $6::jsonb FROM seen WHERE seen.id IS NOT NULL AND NOT seen.duplicate AND NOT seen.full
  ON CONFLICT (target_id, dedup_key) DO NOTHING
  RETURNING id)
SELECT seen.duplicate, seen.full, sent.id IS NOT NULL,
  seen.id IS NULL AND EXISTS (
    SELECT FROM "gendurable".gen_durable g WHERE g.correlation_guard = $5::text AND g.status NOT IN ('done', 'failed')),
  set_config('gendurable.target', CASE WHEN sent.id IS NULL THEN '' ELSE seen.id::text END, true)
FROM seen LEFT JOIN sent ON true
