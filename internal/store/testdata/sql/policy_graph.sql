UPDATE "gendurable".gen_durable g SET join_round = g.round, join_size = g.children_pending, join_done = 0, join_failed = 0,
  wake_done = u.done, wake_failed = u.failed, wake_ended = u.ended, awaits = ($10::text[])[u.lo:u.hi],
  losers = CASE WHEN u.cancels THEN array_append(g.losers, g.round) ELSE g.losers END,
  graphs = array_append(ARRAY(SELECT r.round FROM unnest(g.graphs) WITH ORDINALITY AS r(round, n)
    WHERE EXISTS (SELECT FROM "gendurable".gen_durable k WHERE k.parent_id = g.id AND k.parent_round = r.round AND k.finished_at IS NULL OFFSET 0) ORDER BY r.n), g.round),
  await_deadline = CASE WHEN u.at IS NOT NULL THEN u.at
    WHEN u.us IS NOT NULL THEN (SELECT clock_timestamp()) + u.us * interval '1 microsecond' END
FROM (SELECT unnest($1::bigint[]) AS id, unnest($3::int[]) AS done, unnest($4::int[]) AS failed, unnest($5::int[]) AS ended,
  unnest($6::bigint[]) AS us, unnest($7::timestamptz[]) AS at, unnest($8::int[]) AS lo, unnest($9::int[]) AS hi, unnest($11::boolean[]) AS cancels) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id AND x.commit_id = $2::uuid OFFSET 0) l
WHERE g.ctid = l.tid
