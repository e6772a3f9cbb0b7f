SELECT u.parent, c.size, c.done, c.left, c.skipped, coalesce(c.graph, false) FROM unnest($1::bigint[], $2::bigint[]) AS u(parent, round)
CROSS JOIN LATERAL (SELECT count(*)::int AS size, count(*) FILTER (WHERE k.status = 'done')::int AS done,
    count(*) FILTER (WHERE k.joined IS NULL)::int AS left,
    count(*) FILTER (WHERE k.failure = 'skipped')::int AS skipped, bool_or(k.node IS NOT NULL) AS graph
  FROM "gendurable".gen_durable k WHERE k.parent_id = u.parent AND k.parent_round = u.round OFFSET 0) c
