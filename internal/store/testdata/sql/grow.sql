UPDATE "gendurable".gen_durable p SET children_pending = p.children_pending + $3::int,
  join_size = CASE WHEN p.join_round >= p.round THEN p.join_size + $3::int ELSE p.join_size END
WHERE p.id = $1::bigint AND p.round = $2::bigint AND p.status = 'awaiting_children'
