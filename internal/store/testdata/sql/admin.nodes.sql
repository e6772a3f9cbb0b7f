SELECT g.id, g.status::text, g.queue, coalesce(g.partition_key, ''), coalesce(g.locked_by, ''), g.claim_token,
  g.depth, g.parent_id IS NOT NULL,
  coalesce(($1::text IS NULL OR g.fsm = $1) AND ($2::int IS NULL OR g.fsm_version = $2) AND ($3::text IS NULL OR g.step = $3)
  AND ($4::text IS NULL OR g.queue = $4) AND ($5::text[] IS NULL OR g.status::text = ANY($5)) AND ($6::text[] IS NULL OR g.failure = ANY($6))
  AND ($7::text IS NULL OR starts_with(g.correlation_key, $7)) AND ($8::text IS NULL OR g.correlation_guard = $8)
  AND ($9::text IS NULL OR g.partition_key = $9) AND ($10::jsonb IS NULL OR g.labels @> $10) AND ($11::bigint IS NULL OR g.parent_id = $11)
  AND ($12::timestamptz IS NULL OR g.inserted_at >= $12) AND ($13::timestamptz IS NULL OR g.inserted_at < $13)
  AND ($26::text IS NULL OR strpos(lower(g.last_error), lower($26)) > 0)
  AND ($27::bigint IS NULL OR g.fingerprint = $27), false), coalesce(g.status::text = ANY($14::text[]) AND ($15::boolean IS NULL OR g.paused = $15)
  AND (NOT $16::boolean OR g.eligible_at > (SELECT clock_timestamp())), false),
  $19::text IS NULL OR coalesce(g.correlation_guard = $19, false),
  $20::text IS NULL OR g.status::text = $20 AND g.visit = $21::bigint AND g.attempt = $22::int AND g.crashes = $23::int
    AND g.eligible_at = $24::timestamptz AND g.paused = $25::boolean,
  (jsonb_strip_nulls(jsonb_build_object('status', g.status, 'step', g.step, 'visit', g.visit, 'attempt', g.attempt,
  'crashes', g.crashes, 'eligible_at', g.eligible_at, 'paused', g.paused, 'deadline', g.deadline, 'failure', g.failure)))::text, g.round <> 0 AND (g.round = g.visit OR coalesce(g.join_round = g.visit, false)),
  g.node IS NOT NULL, g.visit = 0, g.parent_round < 0,
  CASE WHEN g.status = 'failed' AND g.round > 0 AND (g.round = g.visit OR coalesce(g.join_round = g.visit, false)) THEN EXISTS (
    SELECT FROM "gendurable".gen_durable k WHERE k.parent_id = g.id AND k.parent_round = g.round AND k.node IS NOT NULL AND k.status <> 'done'
      AND NOT (coalesce(k.failure = 'skipped', false) AND coalesce(k.join_failed > 0, false)) OFFSET 0) ELSE false END,
  CASE WHEN g.status = 'failed' AND g.parent_id IS NOT NULL THEN EXISTS (
    SELECT FROM "gendurable".gen_durable p WHERE p.id = g.parent_id AND p.node IS NOT NULL AND p.status = 'failed' OFFSET 0) ELSE false END
FROM "gendurable".gen_durable g
WHERE g.id = ANY(ARRAY(SELECT unnest($17::bigint[]) UNION SELECT x.parent_id FROM "gendurable".gen_durable x WHERE $18::boolean AND x.id = ANY($17::bigint[])
  UNION SELECT e.to_id FROM "gendurable".edges e WHERE $18::boolean AND e.from_id = ANY($17::bigint[])))
ORDER BY g.id FOR NO KEY UPDATE OF g
