UPDATE "gendurable".schedules s SET next_at = coalesce($2::timestamptz, s.next_at), last_at = coalesce($3::timestamptz, s.last_at),
  last_instance = coalesce($4::bigint, s.last_instance), updated_at = clock_timestamp()
WHERE s.name = $1
