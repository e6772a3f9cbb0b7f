SELECT DISTINCT v.key FROM "gendurable".gen_durable g JOIN "gendurable".gates r ON r.name = split_part(g.gate, '/', 1)
CROSS JOIN LATERAL (VALUES (g.gate, r.rate), (r.name, r.total_rate)) v(key, rate)
WHERE g.id = ANY($1::bigint[]) AND v.rate IS NOT NULL AND NOT EXISTS (SELECT FROM "gendurable".gate_keys e WHERE e.key = v.key) ORDER BY 1
