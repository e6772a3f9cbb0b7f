WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT x.id FROM "gendurable".gen_durable x WHERE x.deadline <= (SELECT now FROM c) AND x.finished_at IS NULL AND coalesce(x.status <> 'executing', false) AND x.id <> ALL($2::bigint[]) ORDER BY x.deadline LIMIT $1
