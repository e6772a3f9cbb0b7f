SELECT DISTINCT v.key FROM (
  SELECT l.key, l.rate FROM "gendurable".gen_durable g JOIN "gendurable".gates r ON r.name = split_part(g.gate, '/', 1)
  CROSS JOIN LATERAL (VALUES (g.gate, r.rate), (r.name, r.total_rate)) l(key, rate) WHERE g.id = ANY($1::bigint[])
  UNION ALL SELECT q.name, q.rate FROM (
    SELECT r.name, r.rate FROM "gendurable".gates r WHERE r.queue = $2 AND (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) ORDER BY r.name COLLATE "C" LIMIT 1) q) v
WHERE v.rate IS NOT NULL AND NOT EXISTS (SELECT FROM "gendurable".gate_keys e WHERE e.key = v.key) ORDER BY 1
