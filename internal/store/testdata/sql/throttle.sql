INSERT INTO "gendurable".gate_keys AS b (key, closed_until, pace, slowed_at)
SELECT $1, CASE WHEN u.closes THEN u.until END, CASE WHEN u.closes THEN 1 ELSE 0.5 END, CASE WHEN NOT u.closes THEN u.now END
FROM (SELECT n.now, n.now + CASE WHEN $2::bigint > 0 THEN $2::bigint ELSE 1000000 END * interval '1 microsecond' AS until,
  $2::bigint > 0 OR NOT r.adapt OR r.rate IS NULL AS closes
  FROM "gendurable".gates r CROSS JOIN (SELECT clock_timestamp() AS now) n WHERE r.name = split_part($1, '/', 1)) u
ON CONFLICT (key) DO UPDATE SET closed_until = greatest(b.closed_until, excluded.closed_until),
  pace = CASE WHEN excluded.slowed_at IS NULL THEN b.pace ELSE greatest(b.pace / 2, 0.01) END, slowed_at = coalesce(excluded.slowed_at, b.slowed_at)
WHERE excluded.slowed_at IS NULL OR b.slowed_at IS NULL OR abs(date_part('epoch', excluded.slowed_at - b.slowed_at)) >= 0.5 RETURNING b.key
