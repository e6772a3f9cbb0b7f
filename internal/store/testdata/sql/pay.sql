WITH c AS MATERIALIZED (
  SELECT clock_timestamp() AS now, cardinality(current_setting('gendurable.claimed')::bigint[]) AS count),
r AS MATERIALIZED (SELECT r.* FROM "gendurable".gates r WHERE r.queue = $1 AND (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) ORDER BY r.name COLLATE "C" LIMIT 1)
INSERT INTO "gendurable".gate_keys AS o (key, debt, at, pace)
SELECT r.name, least(1e12, CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.rate_burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.rate::float8 / r.rate_per * coalesce(b.pace, 1)) END + c.count), c.now, coalesce(least(1, b.pace * power(2, least(60, greatest(0, date_part('epoch', c.now - b.at)) * 100000 / r.rate_per))), 1)
FROM c CROSS JOIN r LEFT JOIN "gendurable".gate_keys b ON b.key = r.name WHERE r.rate IS NOT NULL AND c.count > 0
ON CONFLICT (key) DO UPDATE SET debt = excluded.debt, at = excluded.at, pace = CASE WHEN o.debt = 0 THEN o.pace ELSE excluded.pace END
