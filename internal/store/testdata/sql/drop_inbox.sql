WITH d AS (DELETE FROM "gendurable".signals s
WHERE s.target_id = ANY($1::bigint[])
  AND (SELECT g.commit_id FROM "gendurable".gen_durable g WHERE g.id = s.target_id AND g.status = 'done') = $2::uuid
RETURNING s.id, s.target_id, s.name, s.consumed_at)
SELECT d.target_id, d.name, count(*) AS number FROM d WHERE d.consumed_at IS NULL AND d.id <> ALL(coalesce($3::bigint[], '{}')) GROUP BY 1, 2
