WITH k AS MATERIALIZED (SELECT DISTINCT k.key FROM "gendurable".kept_signals k WHERE k.key > $1::text ORDER BY k.key LIMIT $2::bigint)
SELECT (SELECT count(*) FROM k), coalesce((SELECT max(key) FROM k), ''), ARRAY(
  SELECT k.key FROM k WHERE EXISTS (SELECT FROM "gendurable".gen_durable g WHERE g.correlation_guard = k.key AND g.status NOT IN ('done', 'failed') OFFSET 0))
