SELECT g.id, g.uid, g.fsm, g.fsm_version, g.step, g.attempt, g.crashes, g.visit, g.claim_token, g.priority,
  coalesce(g.partition_key, ''), coalesce(g.parent_id, 0), g.parent_round, g.depth, g.round, coalesce(g.join_round, 0), g.timed_out,
  g.partition_key IS NOT NULL AND EXISTS (SELECT FROM "gendurable".lost_claims l WHERE l.partition_key = g.partition_key AND l.worker <> $2),
  coalesce(g.node, '')
FROM "gendurable".gen_durable g WHERE g.id = $1 AND coalesce(g.status = 'executing', false) AND g.locked_by = $2
