SELECT s.name, (extract(epoch FROM s.next_at - (SELECT coalesce($3::timestamptz, clock_timestamp()))) * 1000000)::bigint
FROM "gendurable".schedules s
WHERE s.paused_at IS NULL AND s.next_at <= (SELECT coalesce($3::timestamptz, clock_timestamp())) + $1::bigint * interval '1 microsecond'
ORDER BY s.next_at LIMIT $2
