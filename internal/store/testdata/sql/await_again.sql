UPDATE "gendurable".gen_durable g SET children_pending = g.children_pending + u.more,
  join_failed = CASE WHEN u.failed > 0 AND g.join_round >= g.round THEN greatest(g.join_failed - u.failed, 0) ELSE g.join_failed END,
  wake_failed = CASE WHEN u.failed > 0 AND g.join_round >= g.round THEN g.wake_failed - least(u.failed, g.wake_failed - 1) ELSE g.wake_failed END,
  wake_ended = CASE WHEN u.failed > 0 AND g.join_round >= g.round THEN g.wake_ended - least(u.failed, g.wake_ended - 1) ELSE g.wake_ended END,
  join_size = g.join_size + u.members
FROM unnest($1::bigint[], $2::int[], $3::int[], $4::int[]) AS u(id, more, failed, members)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'awaiting_children', false)
RETURNING g.id
