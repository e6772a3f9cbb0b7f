WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT x.id FROM "gendurable".gen_durable x WHERE x.await_deadline <= (SELECT now FROM c) AND coalesce(x.status IN ('awaiting_signal', 'awaiting_children'), false) AND x.id <> ALL($2::bigint[]) ORDER BY x.await_deadline LIMIT $1
