SELECT x.id, x.node, x.fsm, x.joined IS NOT NULL, coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false),
  x.status = 'failed' OR x.visit = 0 AND coalesce(x.join_failed > 0, false)
FROM "gendurable".gen_durable x WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint AND x.node = ANY($3::text[])
