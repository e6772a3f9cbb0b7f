
WITH m AS MATERIALIZED (
  SELECT m.n, m.id, m.name, m.payload, m.dedup, m.trace, m.key,
    m.dedup IS NULL OR row_number() OVER (PARTITION BY m.id, m.dedup ORDER BY m.n) = 1 AS first,
    (SELECT true FROM "gendurable".signals d WHERE d.target_id = m.id AND d.dedup_key = m.dedup LIMIT 1) IS NOT NULL AS known
  FROM unnest(current_setting('gendurable.targets')::bigint[], $1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
    WITH ORDINALITY m (id, name, payload, dedup, trace, key, n)),
o AS MATERIALIZED (
  SELECT EXISTS (SELECT FROM "gendurable".gen_durable g WHERE g.correlation_guard = ANY(ARRAY(SELECT m.key FROM m WHERE m.id IS NULL AND m.key IS NOT NULL))
    AND g.status NOT IN ('done', 'failed')) AND NOT $7::boolean AS moved),
h AS MATERIALIZED (
  SELECT t.id, (SELECT count(*) FROM (SELECT FROM "gendurable".signals i WHERE i.target_id = t.id AND i.consumed_at IS NULL LIMIT $6::bigint) n) AS held
  FROM (SELECT DISTINCT m.id FROM m WHERE m.id IS NOT NULL) t),
r AS MATERIALIZED (
  SELECT m.*, count(*) FILTER (WHERE m.first AND NOT m.known) OVER (PARTITION BY m.id ORDER BY m.n) + h.held <= $6::bigint AS fits
  FROM m JOIN h ON h.id = m.id),
sent AS (
  INSERT INTO "gendurable".signals (target_id, name, payload, dedup_key, trace)
  SELECT r.id, r.name, r.payload::jsonb, r.dedup, r.trace::jsonb FROM r
  WHERE r.first AND NOT r.known AND r.fits AND NOT (SELECT moved FROM o) ORDER BY r.n
  ON CONFLICT (target_id, dedup_key) DO NOTHING
  RETURNING target_id, dedup_key),
v AS MATERIALIZED (
  SELECT r.n, r.id, CASE WHEN r.known THEN 'd'
    WHEN NOT first_value(r.fits) OVER (PARTITION BY r.id, CASE WHEN r.dedup IS NULL THEN r.n END, r.dedup ORDER BY r.n) THEN 'f'
    WHEN r.first AND (r.dedup IS NULL OR (r.id, r.dedup) IN (SELECT target_id, dedup_key FROM sent)) THEN 's' ELSE 'd' END AS verdict FROM r),
a AS MATERIALIZED (
  SELECT string_agg(coalesce(v.verdict, '-'), '' ORDER BY m.n) AS verdicts, array_agg(CASE WHEN v.verdict = 's' THEN v.id END ORDER BY m.n)::text AS ids
  FROM m LEFT JOIN v ON v.n = m.n)
SELECT a.verdicts, o.moved, length(set_config('gendurable.targets', CASE WHEN o.moved THEN '{}' ELSE a.ids END, true)) FROM a CROSS JOIN o
