SELECT g.id, q.id, q.name, CASE WHEN q.through <= $1::int THEN q.payload END, coalesce(q.dedup_key, ''), q.inserted_at, q.trace
FROM "gendurable".gen_durable g CROSS JOIN LATERAL (
  SELECT p.*, sum(p.size) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS through FROM (
    SELECT m.*, 100 + coalesce(pg_column_size(m.trace), 0) + CASE WHEN pg_column_compression(m.payload) IS NULL OR pg_column_size(m.payload) > $1::int
      THEN pg_column_size(m.payload) ELSE octet_length(m.payload::text) END AS size
    FROM (SELECT * FROM (SELECT n.id, n.name, n.payload, n.dedup_key, n.inserted_at, n.trace FROM "gendurable".signals n
      WHERE n.target_id = g.id AND n.name = ANY(g.awaits) AND n.consumed_at IS NULL OFFSET 0) i ORDER BY i.id LIMIT $2) m) p) q
WHERE g.id = ANY((SELECT current_setting('gendurable.awaiting')::bigint[])::bigint[]) AND q.through - q.size <= $1::int
ORDER BY g.id, q.id
