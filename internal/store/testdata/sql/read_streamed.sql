
SELECT q.id, q.fsm, q.fsm_version, q.status::text, q.state::text, q.result::text, coalesce(q.failure, ''), coalesce(q.last_error, ''),
  coalesce(q.node, ''), q.retried
FROM (
  SELECT p.*, sum(p.size) OVER (ORDER BY array_position($1::bigint[], p.id) ROWS UNBOUNDED PRECEDING) AS through FROM (
    SELECT g.id, g.fsm, g.fsm_version, g.status, g.state, g.result, g.failure, g.last_error, g.node,
      (g.joined IS NOT NULL AND (g.finished_at IS NULL OR coalesce(g.joined <> g.commit_id, false))) AS retried, 200 +
      pg_column_size(g.state) * CASE WHEN pg_column_compression(g.state) IS NULL THEN 1 ELSE 4 END + coalesce(pg_column_size(g.last_error), 0) +
      coalesce(pg_column_size(g.result) * CASE WHEN pg_column_compression(g.result) IS NULL THEN 1 ELSE 4 END, 0) AS size
    FROM "gendurable".gen_durable g WHERE g.id = ANY($1::bigint[])) p) q
WHERE q.through - q.size < $2::bigint ORDER BY q.through
