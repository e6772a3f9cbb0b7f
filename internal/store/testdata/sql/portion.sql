WITH k AS MATERIALIZED (
  SELECT x.id, x.joined, x.stream_nth, x.stream_visit, x.finished_at FROM "gendurable".gen_durable x WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint),
l AS MATERIALIZED (
  SELECT x.id FROM "gendurable".gen_durable x WHERE x.id = ANY(ARRAY(
    SELECT k.id FROM k WHERE k.joined IS NOT NULL AND k.stream_visit IS NULL AND NOT EXISTS (SELECT FROM k WHERE k.stream_visit = $3::bigint)
    ORDER BY k.stream_nth, k.finished_at, k.id LIMIT $4::int))
  ORDER BY x.id FOR NO KEY UPDATE)
UPDATE "gendurable".gen_durable g SET stream_visit = $3::bigint FROM l WHERE g.id = l.id
