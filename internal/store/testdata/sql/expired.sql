SELECT x.id FROM "gendurable".gen_durable x
WHERE x.status = 'executing' AND x.lease_expires_at < (SELECT clock_timestamp()) AND x.id <> ALL($2::bigint[])
ORDER BY x.lease_expires_at LIMIT $1
