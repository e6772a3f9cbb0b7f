SELECT k.id, k.node, k.fsm, k.fsm_version, k.status::text, coalesce(k.failure, ''),
  CASE WHEN k.status = 'awaiting_children' AND k.visit = 0
    THEN k.children_pending + coalesce(greatest(k.wake_done - k.join_done, 0) - (k.join_done < k.wake_done)::int, 0) ELSE 0 END,
  CASE WHEN k.round = 0 THEN coalesce(k.wake_done, 0) ELSE 0 END
FROM (SELECT g.id, g.round FROM "gendurable".gen_durable g WHERE g.id = $1::bigint OFFSET 0) r
CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".gen_durable x WHERE x.parent_id = r.id AND x.parent_round = r.round AND x.node IS NOT NULL OFFSET 0) k
ORDER BY k.id
