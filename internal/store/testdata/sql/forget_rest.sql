UPDATE "gendurable".gen_durable g SET losers = nullif(ARRAY(
  SELECT l.round FROM unnest(g.losers) WITH ORDINALITY AS l(round, n) WHERE abs(l.round) <> ALL(d.rounds) ORDER BY l.n), '{}'),
  graphs = nullif(ARRAY(SELECT r.round FROM unnest(g.graphs) WITH ORDINALITY AS r(round, n) WHERE r.round <> ALL(d.rounds) ORDER BY r.n), '{}')
FROM (SELECT u.parent, array_agg(u.round) AS rounds FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
  WHERE NOT EXISTS (SELECT FROM "gendurable".gen_durable k WHERE k.parent_id = u.parent AND abs(k.parent_round) = u.round AND k.finished_at IS NULL
    AND NOT (k.joined IS NOT NULL AND coalesce(k.errors @> jsonb_build_array(jsonb_build_object('kind', 'cancel', 'error', 'cancelled: its parent does not wait for it any more')), false)) OFFSET 0)
  GROUP BY 1) d
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = d.parent OFFSET 0) l
WHERE g.ctid = l.tid
