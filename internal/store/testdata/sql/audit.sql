INSERT INTO "gendurable".history (at, instance, visit, attempt, fsm_version, kind, fsm, step, actor, reason, before, after)
SELECT clock_timestamp(), g.id, g.visit, g.attempt, g.fsm_version, 'admin.' || $1::text, g.fsm, g.step, $2::text, $3::text, u.before::jsonb,
  (jsonb_strip_nulls(jsonb_build_object('status', g.status, 'step', g.step, 'visit', g.visit, 'attempt', g.attempt,
  'crashes', g.crashes, 'eligible_at', g.eligible_at, 'paused', g.paused, 'deadline', g.deadline, 'failure', g.failure)))
FROM (SELECT unnest($4::bigint[]) AS id, unnest($5::text[]) AS before) u
CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g
