UPDATE "gendurable".gen_durable g SET status = 'runnable', eligible_at = (SELECT clock_timestamp()), updated_at = (SELECT clock_timestamp()),
  await_deadline = NULL
WHERE g.id = ANY($1::bigint[]) AND g.commit_id = $2::uuid
  AND (SELECT true FROM "gendurable".signals s WHERE s.target_id = g.id AND s.name = ANY(g.awaits) AND s.consumed_at IS NULL
    AND s.id NOT IN (SELECT unnest($3::bigint[])) LIMIT 1)
RETURNING g.queue
