
SELECT l.pid, coalesce(a.state, ''), coalesce(a.application_name, '')
FROM "gendurable".gen_durable g
JOIN pg_catalog.pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = g.xmax
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE g.id = $1::bigint OR g.correlation_guard = $2::text LIMIT 1
