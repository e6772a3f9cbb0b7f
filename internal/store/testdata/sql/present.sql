WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
gone AS (
  DELETE FROM "gendurable".workers w WHERE w.ctid = ANY(ARRAY(
    SELECT x.ctid FROM "gendurable".workers x
    WHERE x.expires_at < (SELECT now FROM c) - $9::bigint * interval '1 microsecond' AND x.id <> $1::uuid FOR UPDATE SKIP LOCKED)))
INSERT INTO "gendurable".workers (id, host, pid, version, queues, machines, draining, started_at, beat_at, expires_at, release)
SELECT $1::uuid, $2, $3, $4, $5::jsonb, $6::text[], $7, now, now, now + $8::bigint * interval '1 microsecond', $10::int FROM c
ON CONFLICT (id) DO UPDATE SET draining = excluded.draining, beat_at = excluded.beat_at, expires_at = excluded.expires_at
