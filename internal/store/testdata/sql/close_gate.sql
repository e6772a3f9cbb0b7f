WITH r AS (SELECT r.name, r.label FROM "gendurable".gates r WHERE r.name = split_part($1::text, '/', 1)),
o AS (SELECT FROM r WHERE r.label IS NOT NULL OR r.name = $1),
b AS (SELECT jsonb_strip_nulls(jsonb_build_object('closed_until', x.closed_until, 'weight', x.weight)) AS seen FROM "gendurable".gate_keys x WHERE x.key = $1),
w AS (
INSERT INTO "gendurable".gate_keys AS k (key, closed_until) SELECT $1, $4::timestamptz FROM o
WHERE $4::timestamptz IS NOT NULL OR EXISTS (SELECT FROM "gendurable".gate_keys x WHERE x.key = $1)
ON CONFLICT (key) DO UPDATE SET closed_until = excluded.closed_until
WHERE CASE WHEN excluded.closed_until IS NULL THEN k.closed_until > clock_timestamp() ELSE k.closed_until IS DISTINCT FROM excluded.closed_until END RETURNING k.key, jsonb_strip_nulls(jsonb_build_object('closed_until', k.closed_until, 'weight', k.weight)) AS now), h AS (INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), CASE WHEN $4::timestamptz IS NULL THEN 'admin.open_gate' ELSE 'admin.close_gate' END, 'gate ' || w.key, $2::text, $3::text, b.seen, w.now FROM w LEFT JOIN b ON true)
SELECT r.label IS NOT NULL, EXISTS (SELECT FROM w) FROM r
