SELECT g.id FROM "gendurable".gen_durable g WHERE g.correlation_guard = $1::text AND g.uid = $2::text::uuid
UNION
SELECT g.id FROM "gendurable".gen_durable g
WHERE g.finished_at > (SELECT clock_timestamp()) - $3::bigint * interval '1 microsecond' AND g.uid = $2::text::uuid
