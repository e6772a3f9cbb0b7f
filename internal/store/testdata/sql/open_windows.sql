WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
INSERT INTO "gendurable".windows AS w (name, uid, opened_at, until)
SELECT r.name, r.uid::uuid, c.now, CASE r.kind
    WHEN 'once' THEN date_bin(r.us * interval '1 microsecond', c.now, '2001-01-01 00:00+00') + r.us * interval '1 microsecond'
    ELSE c.now + r.us * interval '1 microsecond' END
FROM c, unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS r(name, uid, kind, us)
WHERE r.kind = 'debounce' OR NOT EXISTS (SELECT FROM "gendurable".windows o WHERE o.name = r.name AND o.until > clock_timestamp() OFFSET 0)
ORDER BY r.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET uid = excluded.uid,
  opened_at = CASE WHEN w.name LIKE 'debounce:%' THEN w.opened_at ELSE clock_timestamp() END,
  until = CASE WHEN w.name LIKE 'once:%' THEN excluded.until ELSE clock_timestamp() + (excluded.until - excluded.opened_at) END
WHERE w.name LIKE 'debounce:%' OR w.until <= CASE WHEN w.name LIKE 'once:%' THEN excluded.opened_at ELSE clock_timestamp() END
