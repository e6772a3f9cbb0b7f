SELECT abs(parent_round), fsm, status::text, count(*) FROM (
  SELECT g.parent_round, g.fsm, g.status FROM "gendurable".gen_durable g WHERE g.parent_id = $1::bigint LIMIT $2::int) c
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
