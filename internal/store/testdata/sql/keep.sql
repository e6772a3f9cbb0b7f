WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
seen AS MATERIALIZED (
  SELECT nullif(current_setting('gendurable.held', true), '') IS NOT NULL AS held,
    EXISTS (SELECT FROM "gendurable".kept_signals d WHERE d.key = $1::text AND d.dedup_key = $4::text AND d.expires_at > (SELECT now FROM c)) AS duplicate,
    (SELECT count(*) FROM (SELECT FROM "gendurable".kept_signals i WHERE i.key = $1::text AND i.expires_at > (SELECT now FROM c) LIMIT $7::bigint) n)
      >= $7::bigint AS full),
kept AS (
  INSERT INTO "gendurable".kept_signals (key, name, payload, dedup_key, trace, inserted_at, expires_at)
  SELECT $1::text, $2::text, $3::jsonb, $4::text, $5::jsonb, c.now, c.now + $6::bigint * interval '1 microsecond'
  FROM seen, c WHERE seen.held AND NOT seen.duplicate AND NOT seen.full
  ON CONFLICT (key, dedup_key) DO UPDATE SET name = excluded.name, payload = excluded.payload, trace = excluded.trace,
    inserted_at = excluded.inserted_at, expires_at = excluded.expires_at
  RETURNING id)
SELECT seen.held, seen.duplicate, seen.full FROM seen LEFT JOIN kept ON true
