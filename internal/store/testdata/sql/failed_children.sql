SELECT x.id, coalesce(x.parent_id, 0), coalesce(x.parent_round, 0), x.status::text, coalesce(x.failure, ''), x.visit,
  x.joined IS NOT NULL, x.node IS NOT NULL, coalesce(x.join_failed, 0), x.children_pending, x.round,
  x.round = x.visit OR coalesce(x.join_round = x.visit, false), coalesce(-x.round = ANY(x.losers), false),
  CASE WHEN x.join_round >= x.round THEN x.join_size END, CASE WHEN x.round = 0 THEN coalesce(x.wake_done, 0) ELSE 0 END, coalesce(x.join_size, 0) FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".gen_durable x
  WHERE x.parent_id = u.parent AND x.parent_round = u.round AND x.status = 'failed' OFFSET 0) x
LIMIT $3
