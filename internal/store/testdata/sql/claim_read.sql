SELECT g.id, g.uid, g.fsm, g.fsm_version, g.step, CASE WHEN octet_length(g.state) <= $2::int THEN g.state END, g.attempt,
  g.crashes, g.visit, g.claim_token, g.priority, g.correlation_key, g.partition_key, g.parent_id, g.parent_round, g.depth, g.round, g.timed_out,
  g.inserted_at, CASE WHEN octet_length(g.dropped) <= $2::int THEN g.dropped END, g.has_dropped, g.deadline,
  (date_part('epoch', g.deadline - clock_timestamp()) * 1000000)::bigint, g.labels, g.trace, g.eligible_at,
  g.partition_key IS NOT NULL AND EXISTS (SELECT FROM "gendurable".lost_claims l WHERE l.partition_key = g.partition_key AND l.worker <> $1),
  CASE WHEN g.place IS NOT NULL THEN g.gate END, coalesce(g.retain[1] = 0, false), g.join_round, g.node
FROM (
  SELECT x.id, x.uid, x.fsm, x.fsm_version, x.step, CASE WHEN pg_column_size(x.state) <= $2::int THEN x.state::text END AS state, x.attempt,
    x.crashes, x.visit, x.claim_token, x.priority, x.correlation_key, x.partition_key, x.parent_id, x.parent_round, x.depth, x.round,
    x.timed_out, x.inserted_at, (x.round = x.visit OR x.join_round = x.visit) AND x.dropped IS NOT NULL AS has_dropped,
    CASE WHEN (x.round = x.visit OR x.join_round = x.visit) AND pg_column_size(x.dropped) <= $2::int THEN x.dropped::text END AS dropped, x.deadline, x.labels, x.trace,
    x.eligible_at, x.status, x.locked_by, x.gate, x.place, x.retain, coalesce(x.join_round, 0) AS join_round, x.node
  FROM "gendurable".gen_durable x WHERE x.id = ANY((SELECT current_setting('gendurable.claimed')::bigint[])::bigint[]) OFFSET 0) g
WHERE g.status = 'executing' AND g.locked_by = $1
