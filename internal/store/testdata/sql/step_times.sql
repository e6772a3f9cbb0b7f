WITH h AS MATERIALIZED (
  SELECT x.step, x.to_step, x.kind, x.failure, x.error, x.took, x.waited, x.at FROM "gendurable".history x
  WHERE x.at >= $3::timestamptz AND x.at < $4::timestamptz AND x.fsm = $1 AND ($2::int = 0 OR x.fsm_version = $2::int)
    AND x.step IS NOT NULL AND strpos(x.kind, '.') = 0
  LIMIT $5::bigint + 1)
SELECT h.step, count(*), count(*) FILTER (WHERE h.kind = 'retry'), count(*) FILTER (WHERE h.failure IS NOT NULL),
  count(*) FILTER (WHERE h.kind = 'crash'),
  coalesce(percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY h.took), '{0,0,0}'),
  coalesce(percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY h.waited), '{0,0,0}'), (SELECT count(*) FROM h)
FROM h GROUP BY h.step ORDER BY h.step
