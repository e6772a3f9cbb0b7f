SELECT n.target_id, n.id, n.name, n.payload, coalesce(n.dedup_key, ''), n.inserted_at, n.trace, q.follow
FROM (
  SELECT p.*, sum(p.size) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS through, count(*) OVER () AS follow FROM (
    SELECT * FROM (SELECT m.id, 100 + coalesce(pg_column_size(m.trace), 0) +
        pg_column_size(m.payload) * CASE WHEN pg_column_compression(m.payload) IS NULL THEN 1 ELSE 4 END AS size
      FROM "gendurable".signals m WHERE m.target_id = $1::bigint AND m.id > $2::bigint AND m.consumed_at IS NULL AND (SELECT g.status FROM "gendurable".gen_durable g WHERE g.id = $1::bigint) NOT IN ('done', 'failed') OFFSET 0) i
    ORDER BY i.id LIMIT $4::int) p) q
CROSS JOIN LATERAL (SELECT * FROM "gendurable".signals x WHERE x.id = q.id OFFSET 0) n
WHERE q.through - q.size < $3::bigint ORDER BY q.id
