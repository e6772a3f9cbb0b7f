SELECT g.id, (($2::text[] IS NULL OR g.queue = ANY($2)) AND ($3::text[] IS NULL OR g.fsm = ANY($3))
  AND ($4::jsonb IS NULL OR coalesce(g.labels @> $4, false))), $5::boolean AND coalesce(r.outside, false)
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g
LEFT JOIN LATERAL (
  WITH RECURSIVE r(id, all_beneath) AS (
    (SELECT g.id, $6::boolean OR g.losers IS NOT NULL OR g.graphs IS NOT NULL
    UNION ALL
    SELECT p.id, g.node IS NOT NULL OR p.losers IS NOT NULL FROM "gendurable".gen_durable p
    WHERE p.id = g.parent_id AND g.finished_at IS NULL AND p.finished_at IS NULL)
    UNION
    SELECT k.id, true FROM r CROSS JOIN LATERAL (SELECT c.id FROM "gendurable".gen_durable c WHERE c.parent_id = r.id AND r.all_beneath OFFSET 0) k)
  SELECT count(*) > $7::int OR bool_or(x.finished_at IS NULL AND NOT (($2::text[] IS NULL OR x.queue = ANY($2)) AND ($3::text[] IS NULL OR x.fsm = ANY($3))
  AND ($4::jsonb IS NULL OR coalesce(x.labels @> $4, false)))) AS outside
  FROM (SELECT DISTINCT l.id FROM (SELECT r.id FROM r LIMIT $7::int + 1) l) l
  CROSS JOIN LATERAL (SELECT y.queue, y.fsm, y.labels, y.finished_at FROM "gendurable".gen_durable y WHERE y.id = l.id OFFSET 0) x) r ON $5::boolean
