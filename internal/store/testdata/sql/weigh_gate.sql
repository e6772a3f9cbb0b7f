WITH r AS (SELECT r.name, r.label, CASE WHEN x.all THEN r.total_rate ELSE r.rate END AS n, CASE WHEN x.all THEN r.total_rate_per ELSE r.rate_per END AS per,
    CASE WHEN x.all THEN r.total_rate_burst ELSE r.rate_burst END AS burst, r.updated_at
  FROM "gendurable".gates r CROSS JOIN LATERAL (SELECT r.label IS NOT NULL AND r.name = $1 AS all) x WHERE r.name = split_part($1::text, '/', 1)),
o AS (SELECT FROM r WHERE r.label IS NOT NULL OR r.name = $1),
b AS (SELECT jsonb_strip_nulls(jsonb_build_object('closed_until', x.closed_until, 'weight', x.weight, 'places', x.places, 'debt', nullif(x.debt, 0), 'pace', nullif(x.pace, 1))) AS seen FROM "gendurable".gate_keys x WHERE x.key = $1),
w AS (
INSERT INTO "gendurable".gate_keys AS k (key, weight) SELECT $1, $4::int FROM o
WHERE $4::int <> 1 OR EXISTS (SELECT FROM "gendurable".gate_keys x WHERE x.key = $1)
ON CONFLICT (key) DO UPDATE SET weight = excluded.weight WHERE k.weight <> excluded.weight RETURNING k.key, jsonb_strip_nulls(jsonb_build_object('closed_until', k.closed_until, 'weight', k.weight, 'places', k.places, 'debt', nullif(k.debt, 0), 'pace', nullif(k.pace, 1))) AS now), h AS (INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), 'admin.set_gate_weight', 'gate ' || w.key, $2::text, $3::text, b.seen, w.now FROM w LEFT JOIN b ON true)
SELECT r.label IS NOT NULL, EXISTS (SELECT FROM w) FROM r
