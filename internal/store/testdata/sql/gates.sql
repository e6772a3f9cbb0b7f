WITH p AS MATERIALIZED (
  SELECT x.name, count(*)::int AS taken, count(DISTINCT x.key)::int AS kinds FROM (
    SELECT split_part(g.gate, '/', 1) AS name, g.gate AS key FROM "gendurable".gen_durable g WHERE g.place IS NOT NULL
    UNION ALL SELECT split_part(g.run_gate, '/', 1), g.run_gate FROM "gendurable".gen_durable g WHERE g.run_place IS NOT NULL AND g.finished_at IS NULL
    UNION ALL SELECT o.name, o.name FROM (
      SELECT DISTINCT ON (r.queue) r.queue, r.name FROM "gendurable".gates r WHERE (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) ORDER BY r.queue, r.name COLLATE "C") o
    JOIN "gendurable".gen_durable g ON g.queue = o.queue AND g.seat IS NOT NULL) x
  GROUP BY x.name),
w AS MATERIALIZED (
  SELECT split_part(l.gate, '/', 1) AS name, count(*)::int AS waiting, min(l.eligible_at) AS oldest
  FROM (SELECT g.gate, g.eligible_at FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT $1) l GROUP BY 1)
SELECT r.name, r.queue, r.machine, r.step, r.label, r.places, r.rate, r.rate_per, r.rate_burst, r.total, r.total_rate,
  r.total_rate_per, r.total_rate_burst, r.cost_label, r.adapt, r.run, coalesce(p.taken, 0), coalesce(w.waiting, 0), coalesce(p.kinds, 0),
  coalesce(greatest(extract(epoch FROM clock_timestamp() - w.oldest) * 1000000, 0), 0)::bigint,
  CASE WHEN k.closed_until > clock_timestamp() THEN k.closed_until END
FROM "gendurable".gates r LEFT JOIN p ON p.name = r.name LEFT JOIN w ON w.name = r.name LEFT JOIN "gendurable".gate_keys k ON k.key = r.name ORDER BY r.name COLLATE "C"
