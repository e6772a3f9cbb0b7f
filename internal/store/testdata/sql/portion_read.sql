SELECT coalesce(array_agg(x.id ORDER BY x.stream_nth, x.finished_at, x.id) FILTER (WHERE x.stream_visit = $3::bigint), '{}'),
  count(*) FILTER (WHERE x.stream_visit IS NULL)
FROM "gendurable".gen_durable x WHERE x.parent_id = $1::bigint AND x.parent_round = $2::bigint
