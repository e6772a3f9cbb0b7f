WITH i AS MATERIALIZED (
  SELECT g.id, (($2::text[] IS NULL OR g.queue = ANY($2)) AND ($3::text[] IS NULL OR g.fsm = ANY($3))
  AND ($4::jsonb IS NULL OR coalesce(g.labels @> $4, false))) AS covered, $6::boolean OR g.losers IS NOT NULL OR g.graphs IS NOT NULL AS leads,
    p.id AS parent, p.id IS NOT NULL AND (g.node IS NOT NULL OR p.losers IS NOT NULL) AS whole
  FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN LATERAL (SELECT x.* FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) g
  LEFT JOIN LATERAL (SELECT x.id, x.losers FROM "gendurable".gen_durable x
    WHERE x.id = g.parent_id AND g.finished_at IS NULL AND x.finished_at IS NULL OFFSET 0) p ON $5::boolean),
w AS MATERIALIZED (
  SELECT s.id, s.whole, r.outside, r.wide
  FROM (SELECT i.parent AS id, i.whole FROM i WHERE i.parent IS NOT NULL
    UNION SELECT i.id, true FROM i WHERE $5::boolean AND i.leads AND NOT i.whole) s
  CROSS JOIN LATERAL (
    WITH RECURSIVE r(id, all_beneath) AS (
      SELECT s.id, s.whole
      UNION
      SELECT k.id, true FROM r CROSS JOIN LATERAL (SELECT c.id FROM "gendurable".gen_durable c WHERE c.parent_id = r.id AND r.all_beneath OFFSET 0) k)
    SELECT count(*) > $7::int AS wide, bool_or(x.finished_at IS NULL AND NOT (($2::text[] IS NULL OR x.queue = ANY($2)) AND ($3::text[] IS NULL OR x.fsm = ANY($3))
  AND ($4::jsonb IS NULL OR coalesce(x.labels @> $4, false)))) AS outside
    FROM (SELECT r.id FROM r LIMIT $7::int + 1) l
    CROSS JOIN LATERAL (SELECT y.queue, y.fsm, y.labels, y.finished_at FROM "gendurable".gen_durable y WHERE y.id = l.id OFFSET 0) x) r)
SELECT i.id, i.covered, coalesce(own.outside, false) OR coalesce(above.outside, false), coalesce(own.wide, false) OR coalesce(above.wide, false)
FROM i
LEFT JOIN w own ON own.id = i.id AND own.whole AND i.leads
LEFT JOIN w above ON above.id = i.parent AND above.whole = i.whole
