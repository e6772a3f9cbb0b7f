WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
r AS MATERIALIZED (SELECT r.*, r.name = ANY(current_setting('gendurable.gates')::text[]) AS mine
  FROM "gendurable".gates r WHERE r.queue = $1 AND (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) ORDER BY r.name COLLATE "C" LIMIT 1),
n AS MATERIALIZED (
  SELECT r.*, h.taken, d.debt, e.closed_until, e.pace, e.at, CASE WHEN NOT r.mine OR e.closed_until > c.now OR e.key IS NOT NULL AND b.at IS NULL
      OR r.rate IS NOT NULL AND e.key IS NULL AND r.name = ANY(current_setting('gendurable.unpaid')::text[]) THEN 0
    ELSE greatest(0, least($2::int, r.places - cardinality(h.taken), floor(r.rate_burst - d.debt))) END::int AS free, c.now
  FROM c CROSS JOIN r CROSS JOIN LATERAL (
    SELECT ARRAY(SELECT g.seat FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.seat IS NOT NULL) AS taken OFFSET 0) h
  LEFT JOIN "gendurable".gate_keys e ON e.key = r.name
  LEFT JOIN LATERAL (SELECT b.debt, b.at, b.pace FROM "gendurable".gate_keys b WHERE b.key = r.name FOR NO KEY UPDATE OF b SKIP LOCKED) b ON true
  LEFT JOIN LATERAL (SELECT CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.rate_burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.rate::float8 / r.rate_per * coalesce(b.pace, 1)) END AS debt OFFSET 0) d ON r.rate IS NOT NULL)
SELECT length(set_config('gendurable.seats', CASE WHEN n.places IS NULL THEN array_fill(NULL::int, ARRAY[n.free])
    ELSE ARRAY(SELECT f.n FROM (SELECT generate_series(1, least(n.places, cardinality(n.taken) + n.free)) EXCEPT SELECT unnest(n.taken)) f(n)
      ORDER BY f.n LIMIT n.free) END::text, false)),
  CASE WHEN n.closed_until > n.now THEN (date_part('epoch', n.closed_until - n.now) * 1000000)::bigint
    WHEN n.debt + 1 > n.rate_burst THEN least(1e15, ceil((n.debt + 1 - n.rate_burst) * n.rate_per / n.rate / coalesce(n.pace, 1)))::bigint END,
  coalesce(cardinality(n.taken) >= n.places, false), coalesce(n.at > n.now, false)
FROM n
