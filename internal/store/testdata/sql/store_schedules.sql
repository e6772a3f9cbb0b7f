INSERT INTO "gendurable".schedules AS s (name, spec, expression, time_zone, catch_up, overlap, jitter, next_at)
SELECT u.name, u.spec::jsonb, u.expression, u.zone, u.catch_up, u.overlap, u.jitter, u.next
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::timestamptz[])
  AS u(name, spec, expression, zone, catch_up, overlap, jitter, next)
WHERE NOT EXISTS (SELECT FROM "gendurable".schedules x WHERE x.name = u.name
  AND (x.spec, x.expression, x.time_zone, x.catch_up, x.overlap, x.jitter) = (u.spec::jsonb, u.expression, u.zone, u.catch_up, u.overlap, u.jitter))
ORDER BY u.name
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, expression = excluded.expression, time_zone = excluded.time_zone,
  catch_up = excluded.catch_up, overlap = excluded.overlap, jitter = excluded.jitter, updated_at = clock_timestamp(),
  next_at = CASE WHEN (s.expression, s.time_zone) IS DISTINCT FROM (excluded.expression, excluded.time_zone) THEN excluded.next_at
    ELSE s.next_at END
WHERE (s.spec, s.expression, s.time_zone, s.catch_up, s.overlap, s.jitter)
  IS DISTINCT FROM (excluded.spec, excluded.expression, excluded.time_zone, excluded.catch_up, excluded.overlap, excluded.jitter)
RETURNING s.name
