WITH h AS MATERIALIZED (
  SELECT x.step, x.to_step, x.kind, x.failure, x.error, x.took, x.waited, x.at FROM "gendurable".history x
  WHERE x.at >= $3::timestamptz AND x.at < $4::timestamptz AND x.fsm = $1 AND ($2::int = 0 OR x.fsm_version = $2::int)
    AND x.step IS NOT NULL AND strpos(x.kind, '.') = 0
  LIMIT $5::bigint + 1)
SELECT h.step, coalesce(h.to_step, ''), h.kind, count(*), (SELECT count(*) FROM h)
FROM h WHERE h.to_step IS NOT NULL OR h.kind = 'done' OR h.failure IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
