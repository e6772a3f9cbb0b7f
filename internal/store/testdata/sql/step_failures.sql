WITH h AS MATERIALIZED (
  SELECT x.step, x.to_step, x.kind, x.failure, x.error, x.took, x.waited, x.at FROM "gendurable".history x
  WHERE x.at >= $3::timestamptz AND x.at < $4::timestamptz AND x.fsm = $1 AND ($2::int = 0 OR x.fsm_version = $2::int)
    AND x.step IS NOT NULL AND strpos(x.kind, '.') = 0
  LIMIT $5::bigint + 1)
, o AS (SELECT h.step, count(*) AS n FROM h GROUP BY h.step)
SELECT h.step, h.kind, coalesce(h.failure, ''), coalesce(left(h.error, 200), ''), count(*), max(h.at), max(o.n), (SELECT sum(n)::bigint FROM o)
FROM h JOIN o ON o.step = h.step WHERE h.failure IS NOT NULL OR h.kind IN ('retry', 'crash')
GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT $6::bigint
