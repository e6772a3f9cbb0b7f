WITH p AS (INSERT INTO "gendurable".paused_queues (queue) VALUES ($1) ON CONFLICT (queue) DO NOTHING RETURNING queue, paused_at),
a AS (INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), 'admin.pause_queue', 'queue ' || p.queue, $2::text, $3::text, NULL, jsonb_build_object('paused_at', p.paused_at) FROM p)
SELECT queue FROM p
