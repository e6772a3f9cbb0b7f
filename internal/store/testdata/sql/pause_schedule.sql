WITH p AS (UPDATE "gendurable".schedules s SET paused_at = clock_timestamp(), updated_at = clock_timestamp()
  WHERE s.name = $1 AND s.paused_at IS NULL RETURNING s.name, s.paused_at),
a AS (INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), 'admin.pause_schedule', 'schedule ' || p.name, $2::text, $3::text, NULL, jsonb_build_object('paused_at', p.paused_at) FROM p)
SELECT EXISTS (SELECT FROM "gendurable".schedules s WHERE s.name = $1), EXISTS (SELECT FROM p)
