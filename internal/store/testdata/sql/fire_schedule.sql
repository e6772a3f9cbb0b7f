SELECT s.name, s.spec::text, s.expression, s.time_zone, s.catch_up, s.overlap, s.jitter, s.next_at, s.last_at, s.last_instance,
  s.paused_at, clock_timestamp() FROM "gendurable".schedules s
WHERE s.name = $1 AND s.paused_at IS NULL AND s.next_at <= coalesce($2::timestamptz, clock_timestamp()) FOR NO KEY UPDATE SKIP LOCKED
