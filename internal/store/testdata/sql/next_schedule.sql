SELECT (extract(epoch FROM s.next_at - clock_timestamp()) * 1000000)::bigint
FROM "gendurable".schedules s WHERE s.paused_at IS NULL ORDER BY s.next_at LIMIT 1
