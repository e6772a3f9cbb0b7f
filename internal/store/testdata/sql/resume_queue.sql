WITH p AS (DELETE FROM "gendurable".paused_queues WHERE queue = $1 RETURNING queue, paused_at),
a AS (INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after) SELECT clock_timestamp(), 'admin.resume_queue', 'queue ' || p.queue, $2::text, $3::text, jsonb_build_object('paused_at', p.paused_at), NULL FROM p)
SELECT queue FROM p
