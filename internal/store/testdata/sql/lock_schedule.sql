SELECT s.name, s.spec::text, s.expression, s.time_zone, s.catch_up, s.overlap, s.jitter, s.next_at, s.last_at, s.last_instance,
  s.paused_at, clock_timestamp() FROM "gendurable".schedules s WHERE s.name = $1 FOR NO KEY UPDATE
