WITH turned AS (
  UPDATE "gendurable".gen_durable g SET status = 'runnable', step = u.step, state = coalesce(u.state::jsonb, g.state), result = NULL, failure = NULL,
    errors = CASE WHEN g.status = 'failed' THEN nullif(g.errors - (-1), '[]') ELSE g.errors END,
    last_error = NULL, awaits = ($7::text[])[u.lo:u.hi], timed_out = false, eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp()),
    attempt = 0, crashes = 0,
    visit = g.visit + 1, finished_at = NULL, joined = nullif(g.joined, $2::uuid)
  FROM (SELECT unnest($1::bigint[]) AS id, unnest($3::text[]) AS step, unnest($4::text[]) AS state, unnest($5::int[]) AS lo,
    unnest($6::int[]) AS hi) u
  WHERE g.id = u.id AND g.commit_id = $2::uuid AND (SELECT true FROM "gendurable".signals s WHERE s.target_id = g.id
    AND s.name = ANY(($7::text[])[u.lo:u.hi]) AND s.consumed_at IS NULL AND s.id NOT IN (SELECT unnest($8::bigint[])) LIMIT 1)
  RETURNING g.id, g.queue),
consumed AS (DELETE FROM "gendurable".signals s WHERE s.id = ANY($8::bigint[]) AND s.dedup_key IS NULL AND s.target_id IN (SELECT id FROM turned)),
kept AS (UPDATE "gendurable".signals s SET consumed_at = (SELECT clock_timestamp()), payload = '{}'
  WHERE s.id = ANY($8::bigint[]) AND s.dedup_key IS NOT NULL AND s.target_id IN (SELECT id FROM turned))
SELECT id, queue FROM turned
