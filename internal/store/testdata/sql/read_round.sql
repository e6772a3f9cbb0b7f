WITH r AS MATERIALIZED (SELECT g.id FROM "gendurable".gen_durable g WHERE g.parent_id = $1::bigint AND g.parent_round = $2::bigint ORDER BY g.id)
SELECT f.*, NULL::bigint[] FROM (
SELECT q.id, q.fsm, q.fsm_version, q.status::text, q.state::text, q.result::text, coalesce(q.failure, ''), coalesce(q.last_error, ''),
  coalesce(q.node, ''), q.retried
FROM (
  SELECT p.*, sum(p.size) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS through FROM (
    SELECT g.id, g.fsm, g.fsm_version, g.status, g.state, g.result, g.failure, g.last_error, g.node,
      (g.joined IS NOT NULL AND (g.finished_at IS NULL OR coalesce(g.joined <> g.commit_id, false))) AS retried, 200 +
      pg_column_size(g.state) * CASE WHEN pg_column_compression(g.state) IS NULL THEN 1 ELSE 4 END + coalesce(pg_column_size(g.last_error), 0) +
      coalesce(pg_column_size(g.result) * CASE WHEN pg_column_compression(g.result) IS NULL THEN 1 ELSE 4 END, 0) AS size
    FROM "gendurable".gen_durable g WHERE g.id = ANY(ARRAY(SELECT r.id FROM r ORDER BY r.id LIMIT $4::int))) p) q
WHERE q.through - q.size < $3::bigint ORDER BY q.id) f
UNION ALL SELECT 0, '', 0, '', NULL, NULL, '', '', '', false, ARRAY(SELECT r.id FROM r ORDER BY r.id) ORDER BY 1
