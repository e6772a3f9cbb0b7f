WITH RECURSIVE q(queue) AS (
  (SELECT g.queue FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.queue > q.queue ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) FROM q WHERE q.queue IS NOT NULL),
c AS MATERIALIZED (SELECT clock_timestamp() AS now,
  greatest(1000, $1::bigint / greatest(1, (SELECT count(q.queue) FROM q) * (SELECT count(*) FROM "gendurable".gates))) AS most),
p AS MATERIALIZED (
  SELECT x.name, count(*)::int AS taken, count(DISTINCT x.key)::int AS kinds FROM (
    SELECT split_part(g.gate, '/', 1) AS name, g.gate AS key FROM "gendurable".gen_durable g WHERE g.place IS NOT NULL
    UNION ALL SELECT split_part(g.run_gate, '/', 1), g.run_gate FROM "gendurable".gen_durable g WHERE g.run_place IS NOT NULL AND g.finished_at IS NULL
    UNION ALL SELECT o.name, o.name FROM (
      SELECT DISTINCT ON (r.queue) r.queue, r.name FROM "gendurable".gates r WHERE (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) ORDER BY r.queue, r.name COLLATE "C") o
    JOIN "gendurable".gen_durable g ON g.queue = o.queue AND g.seat IS NOT NULL) x
  GROUP BY x.name),
w AS MATERIALIZED (
  SELECT r.name, count(*)::int AS waiting, min(l.eligible_at) AS oldest
  FROM "gendurable".gates r CROSS JOIN c CROSS JOIN q CROSS JOIN LATERAL (
    (SELECT g.eligible_at FROM "gendurable".gen_durable g WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate = r.name ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT c.most)
    UNION ALL
    (SELECT g.eligible_at FROM "gendurable".gen_durable g WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ (r.name || '/') AND g.gate ~<~ (r.name || '0')
      ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT c.most)) l
  GROUP BY r.name),
z AS MATERIALIZED (
  SELECT split_part(x.key, '/', 1) AS name, count(*)::int AS keys FROM (
    SELECT b.key FROM "gendurable".gate_keys b WHERE b.closed_until > (SELECT c.now FROM c) AND strpos(b.key, '/') > 0 LIMIT 10000) x
  GROUP BY 1),
h AS MATERIALIZED (
  SELECT r.name, count(*)::int AS waiting, min(l.eligible_at) AS oldest
  FROM "gendurable".gates r CROSS JOIN c LEFT JOIN p ON p.name = r.name LEFT JOIN "gendurable".gate_keys b ON b.key = r.name CROSS JOIN LATERAL (
    SELECT f.eligible_at FROM (
      SELECT g.eligible_at FROM "gendurable".gen_durable g WHERE g.queue = r.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
      ORDER BY g.priority, g.eligible_at, g.id LIMIT c.most) f
    WHERE f.eligible_at <= c.now) l
  WHERE (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) AND coalesce(coalesce(p.taken, 0) >= r.places OR b.closed_until > c.now
    OR CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.rate_burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.rate::float8 / r.rate_per * coalesce(b.pace, 1)) END + 1 > r.rate_burst, false)
  GROUP BY r.name)
SELECT r.name, r.queue, r.machine, r.step, r.label, r.places, r.rate, r.rate_per, r.rate_burst, r.total, r.total_rate,
  r.total_rate_per, r.total_rate_burst, r.cost_label, r.adapt, r.run, coalesce(p.taken, 0), coalesce(w.waiting, h.waiting, 0), coalesce(p.kinds, 0),
  coalesce(greatest(extract(epoch FROM clock_timestamp() - coalesce(w.oldest, h.oldest)) * 1000000, 0), 0)::bigint,
  CASE WHEN k.closed_until > clock_timestamp() THEN k.closed_until END, coalesce(z.keys, 0)
FROM "gendurable".gates r LEFT JOIN p ON p.name = r.name LEFT JOIN z ON z.name = r.name LEFT JOIN w ON w.name = r.name LEFT JOIN h ON h.name = r.name LEFT JOIN "gendurable".gate_keys k ON k.key = r.name ORDER BY r.name COLLATE "C"
