WITH RECURSIVE c AS MATERIALIZED (SELECT clock_timestamp() AS now),
other(queue) AS (
  SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) WHERE true
  UNION ALL SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.queue > o.queue ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) FROM other o WHERE o.queue IS NOT NULL),
rival AS MATERIALIZED (
  SELECT o.queue FROM other o WHERE o.queue <> $1 AND NOT EXISTS (SELECT FROM "gendurable".paused_queues p WHERE p.queue = o.queue) AND EXISTS (
    SELECT FROM "gendurable".workers w WHERE w.queues ? o.queue AND NOT w.draining AND w.expires_at > clock_timestamp()) ORDER BY random() LIMIT 16),
r AS MATERIALIZED (SELECT r.name, r.queue, r.run, coalesce(r.places, r.total) AS places, r.rate, r.rate_per, r.rate_burst, r.updated_at FROM "gendurable".gates r),
seen AS MATERIALIZED (SELECT g.gate AS k FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ $2::text AND $4::bool
  ORDER BY g.queue, g.gate USING ~<~ LIMIT $3::int),
next(k, n) AS (
  SELECT (SELECT g.gate FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ $2::text ORDER BY g.queue, g.gate USING ~<~ LIMIT 1), 1 WHERE NOT $4::bool
  UNION ALL SELECT (SELECT g.gate FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ (x.k || chr(1)) ORDER BY g.queue, g.gate USING ~<~ LIMIT 1), x.n + 1
  FROM next x WHERE x.k IS NOT NULL AND x.n < $3::int),
keys AS MATERIALIZED (SELECT DISTINCT s.k FROM seen s UNION ALL SELECT x.k FROM next x WHERE x.k IS NOT NULL),
known AS MATERIALIZED (
  SELECT k.k, 0 AS held, NULL::timestamptz AS closed_until, NULL::float8 AS debt, NULL::timestamptz AS at, NULL::float8 AS pace, NULL::int AS places FROM keys k
  UNION ALL SELECT g.gate, 1, NULL, NULL, NULL, NULL, NULL FROM "gendurable".gen_durable g
  WHERE g.place IS NOT NULL AND g.gate = ANY(ARRAY(SELECT k.k FROM keys k JOIN r ON r.name = split_part(k.k, '/', 1) WHERE NOT r.run AND coalesce(r.places, (SELECT b.places FROM "gendurable".gate_keys b WHERE b.key = k.k)) IS NOT NULL))
  UNION ALL SELECT g.run_gate, 1, NULL, NULL, NULL, NULL, NULL FROM "gendurable".gen_durable g
  WHERE g.run_place IS NOT NULL AND g.finished_at IS NULL AND g.run_gate = ANY(ARRAY(SELECT k.k FROM keys k JOIN r ON r.name = split_part(k.k, '/', 1) WHERE r.run AND coalesce(r.places, (SELECT b.places FROM "gendurable".gate_keys b WHERE b.key = k.k)) IS NOT NULL))
  UNION ALL SELECT b.key, 0, b.closed_until, b.debt, b.at, b.pace, b.places FROM "gendurable".gate_keys b WHERE b.key = ANY(ARRAY(SELECT k.k FROM keys k))),
x AS MATERIALIZED (
  SELECT z.k, z.name, CASE WHEN z.full THEN NULL ELSE z.wait END AS wait, (z.full OR z.wait > 0) AND CASE WHEN z.shared AND (SELECT count(*) FROM rival) > 0 THEN NOT EXISTS (
    SELECT FROM rival q WHERE (SELECT g.id FROM "gendurable".gen_durable g WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate = z.k ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) IS NOT NULL) ELSE true END AS blocked
  FROM (
    SELECT d.k, d.name, d.shared, d.full, greatest(0, CASE WHEN d.closed_until > d.now THEN (date_part('epoch', d.closed_until - d.now) * 1000000)::bigint END,
      CASE WHEN d.debt + 1 > d.rate_burst THEN least(1e15, ceil((d.debt + 1 - d.rate_burst) * d.rate_per / d.rate / coalesce(d.pace, 1)))::bigint END) AS wait
    FROM (
      SELECT b.k, r.name, r.queue IS NULL AS shared, coalesce(b.held >= CASE WHEN r.places = 0 THEN 0 ELSE coalesce(b.places, r.places) END, false) AS full, b.closed_until, b.pace, r.rate, r.rate_per, r.rate_burst, c.now,
        CASE WHEN r.rate IS NOT NULL THEN CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.rate_burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.rate::float8 / r.rate_per * coalesce(b.pace, 1)) END END AS debt
      FROM (SELECT u.k, sum(u.held) AS held, max(u.closed_until) AS closed_until, max(u.debt) AS debt, max(u.at) AS at, max(u.pace) AS pace, max(u.places) AS places FROM known u GROUP BY u.k) b
      CROSS JOIN c JOIN r ON r.name = split_part(b.k, '/', 1)) d) z),
y AS MATERIALIZED (SELECT x.*, row_number() OVER w AS n, count(*) FILTER (WHERE NOT x.blocked) OVER w AS island FROM x WINDOW w AS (ORDER BY x.k USING ~<~)),
run AS MATERIALIZED (
  SELECT y.name, (array_agg(y.k ORDER BY y.n))[1] AS lo, (array_agg(y.k ORDER BY y.n DESC))[1] AS hi, min(y.n)::int AS n, count(*)::int AS size FROM y WHERE y.blocked GROUP BY y.name, y.island),
due AS MATERIALIZED (SELECT y.k, y.wait FROM y WHERE y.blocked AND y.wait <= $5::bigint)
SELECT (SELECT count(*) FROM keys), (SELECT k.k FROM keys k ORDER BY k.k USING ~>~ LIMIT 1), (SELECT count(*) FROM seen), (SELECT count(*) FROM y WHERE y.blocked), (SELECT count(*) FROM y),
  ARRAY(SELECT r.lo FROM run r ORDER BY r.n), ARRAY(SELECT r.hi FROM run r ORDER BY r.n), ARRAY(SELECT r.n FROM run r ORDER BY r.n), ARRAY(SELECT r.size FROM run r ORDER BY r.n),
  ARRAY(SELECT d.k FROM due d ORDER BY d.k), ARRAY(SELECT d.wait FROM due d ORDER BY d.k),
  (SELECT coalesce((SELECT n.id FROM "gendurable".gen_durable n ORDER BY n.id DESC LIMIT 1), 0))
