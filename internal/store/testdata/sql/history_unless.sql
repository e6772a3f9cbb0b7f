INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT g.updated_at, u.id, u.visit, u.took, NULL, u.attempt, g.fsm_version,
  CASE WHEN g.visit > u.visit THEN 'next' ELSE u.kind END, $3::uuid, g.fsm, u.step, CASE WHEN g.visit > u.visit THEN g.step END,
  g.failure, CASE WHEN g.visit = u.visit THEN left(u.err, 1024) END, u.diff::jsonb
FROM (SELECT unnest($1::bigint[]) AS id, unnest($4::bigint[]) AS visit, unnest($5::text[]) AS step, unnest($6::int[]) AS attempt,
  unnest($7::bigint[]) AS took, unnest($8::text[]) AS kind, unnest($9::text[]) AS err, unnest($10::text[]) AS diff) u
CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g
WHERE g.commit_id = $2::uuid
