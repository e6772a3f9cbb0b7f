WITH r AS (SELECT r.name, r.label, CASE WHEN x.all THEN r.total_rate ELSE r.rate END AS n, CASE WHEN x.all THEN r.total_rate_per ELSE r.rate_per END AS per,
    CASE WHEN x.all THEN r.total_rate_burst ELSE r.rate_burst END AS burst, r.updated_at
  FROM "gendurable".gates r CROSS JOIN LATERAL (SELECT r.label IS NOT NULL AND r.name = $1 AS all) x WHERE r.name = split_part($1::text, '/', 1)),
o AS (SELECT FROM r WHERE r.label IS NOT NULL OR r.name = $1),
b AS (SELECT jsonb_strip_nulls(jsonb_build_object('closed_until', x.closed_until, 'weight', x.weight, 'places', x.places, 'debt', nullif(x.debt, 0), 'pace', nullif(x.pace, 1))) AS seen FROM "gendurable".gate_keys x WHERE x.key = $1),
w AS (
INSERT INTO "gendurable".gate_keys AS k (key, closed_until) SELECT $1, $4::timestamptz FROM o
WHERE $4::timestamptz IS NOT NULL OR EXISTS (SELECT FROM "gendurable".gate_keys x WHERE x.key = $1)
ON CONFLICT (key) DO UPDATE SET closed_until = excluded.closed_until,
  debt = CASE WHEN excluded.closed_until IS NULL THEN 0 ELSE k.debt END, pace = CASE WHEN excluded.closed_until IS NULL THEN 1 ELSE k.pace END,
  at = CASE WHEN excluded.closed_until IS NULL THEN clock_timestamp() ELSE k.at END
WHERE CASE WHEN excluded.closed_until IS NULL THEN coalesce(k.closed_until > clock_timestamp(), false) OR (
    SELECT CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.n::float8 / r.per * coalesce(b.pace, 1)) END > 0 OR least(1, b.pace * power(2, least(60, greatest(0, date_part('epoch', c.now - b.at)) * 100000 / r.per))) < 1
    FROM (SELECT k.debt, k.at, k.pace) b CROSS JOIN r CROSS JOIN (SELECT clock_timestamp() AS now) c WHERE r.n IS NOT NULL) ELSE k.closed_until IS DISTINCT FROM excluded.closed_until END RETURNING k.key, jsonb_strip_nulls(jsonb_build_object('closed_until', k.closed_until, 'weight', k.weight, 'places', k.places, 'debt', nullif(k.debt, 0), 'pace', nullif(k.pace, 1))) AS now), h AS (INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), CASE WHEN $4::timestamptz IS NULL THEN 'admin.open_gate' ELSE 'admin.close_gate' END, 'gate ' || w.key, $2::text, $3::text, b.seen, w.now FROM w LEFT JOIN b ON true)
SELECT r.label IS NOT NULL, EXISTS (SELECT FROM w) FROM r
