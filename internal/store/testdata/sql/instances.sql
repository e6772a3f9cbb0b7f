SELECT g.id, g.fsm, g.fsm_version, g.step, g.queue, g.priority, g.status, g.state, g.result, g.attempt, g.crashes, g.visit, g.failure, g.last_error, g.correlation_key, g.partition_key, g.paused, g.eligible_at, g.inserted_at, g.finished_at, g.deadline, g.labels, g.progress
FROM "gendurable".gen_durable g WHERE g.id = ANY($1::bigint[]) ORDER BY g.id
