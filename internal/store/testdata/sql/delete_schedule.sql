WITH p AS (DELETE FROM "gendurable".schedules s WHERE s.name = $1 RETURNING s.*),
a AS (INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), 'admin.delete_schedule', 'schedule ' || p.name, $2::text, $3::text,
  jsonb_strip_nulls(to_jsonb(p) - '{spec,updated_at}'::text[]), NULL FROM p)
SELECT EXISTS (SELECT FROM p), EXISTS (SELECT FROM p)
