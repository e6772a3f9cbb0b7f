WITH d AS (DELETE FROM "gendurable".signals s
WHERE s.target_id = ANY($1::bigint[])
  AND (SELECT g.commit_id FROM "gendurable".gen_durable g WHERE g.id = s.target_id AND g.status = 'done') = $2::uuid
RETURNING s.id, s.target_id, s.name, s.consumed_at),
n AS (SELECT d.target_id, d.name, count(*) AS number FROM d WHERE d.consumed_at IS NULL AND d.id <> ALL(coalesce($3::bigint[], '{}')) GROUP BY 1, 2),
w AS (INSERT INTO "gendurable".history (at, instance, visit, took, waited, attempt, fsm_version, kind, worker, fsm, step, to_step, failure, error, diff)
  SELECT (SELECT clock_timestamp()), g.id, g.visit, NULL, NULL, NULL, g.fsm_version, 'signal.unread', $5::uuid, g.fsm, g.step,
    NULL, NULL, left(n.number || ' × ' || n.name, 1024), NULL
  FROM n JOIN "gendurable".gen_durable g ON g.id = n.target_id WHERE g.id = ANY($4::bigint[]))
SELECT n.target_id, n.name, n.number FROM n
