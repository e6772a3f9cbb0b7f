INSERT INTO "gendurable".history (at, instance, kind, subject, actor, reason)
VALUES (clock_timestamp(), $4::bigint, 'admin.run_schedule', 'schedule ' || $1::text, $2::text, $3::text)
