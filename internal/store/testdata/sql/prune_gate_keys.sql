WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, pg_try_advisory_xact_lock($2::bigint) AS alone),
p AS MATERIALIZED (SELECT b.key FROM "gendurable".gate_keys b WHERE (SELECT alone FROM c) AND b.key > $1::text ORDER BY b.key LIMIT $3::bigint),
l AS MATERIALIZED (
  SELECT b.key FROM "gendurable".gate_keys b CROSS JOIN c LEFT JOIN LATERAL (
    SELECT CASE WHEN r.label IS NOT NULL AND b.key = r.name THEN r.total_rate ELSE r.rate END AS n,
      CASE WHEN r.label IS NOT NULL AND b.key = r.name THEN r.total_rate_per ELSE r.rate_per END AS per,
      CASE WHEN r.label IS NOT NULL AND b.key = r.name THEN r.total_rate_burst ELSE r.rate_burst END AS burst, r.updated_at
    FROM "gendurable".gates r WHERE r.name = split_part(b.key, '/', 1)) r ON true
  WHERE b.key = ANY(ARRAY(SELECT p.key FROM p)) AND b.weight = 1 AND b.places IS NULL AND b.at < c.now - interval '10 minutes'
    AND coalesce(b.closed_until < c.now - interval '1 minute', true) AND (r.n IS NULL OR CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.n::float8 / r.per * coalesce(b.pace, 1)) END = 0 AND least(1, b.pace * power(2, least(60, greatest(0, date_part('epoch', c.now - b.at)) * 100000 / r.per))) = 1)
  ORDER BY b.key FOR UPDATE OF b SKIP LOCKED),
d AS (DELETE FROM "gendurable".gate_keys b WHERE b.key = ANY(ARRAY(SELECT l.key FROM l)) RETURNING b.key)
SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM p), coalesce((SELECT max(p.key) FROM p), '')
