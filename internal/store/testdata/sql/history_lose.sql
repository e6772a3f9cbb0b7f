INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT g.updated_at, g.id, g.visit, NULL, NULL, g.attempt, g.fsm_version, 'join.cancel',
  CASE WHEN u.worker ~ '^[0-9a-f-]{36}$' THEN u.worker::uuid END, g.fsm, g.step, NULL, g.failure, left(g.last_error, 1024), NULL
FROM unnest($1::bigint[], $3::text[]) AS u(id, worker)
CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g
JOIN "gendurable".recorded_machines r ON r.machine = g.fsm
WHERE g.commit_id = $2::uuid
