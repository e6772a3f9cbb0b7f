WITH RECURSIVE counted AS MATERIALIZED (
  SELECT g.id, coalesce(g.parent_round, 0) AS round, g.fsm, g.status FROM "gendurable".gen_durable g WHERE g.parent_id = $1::bigint LIMIT $2::int),
up AS (
  SELECT p.id, p.parent_id, 1 AS n FROM "gendurable".gen_durable i JOIN "gendurable".gen_durable p ON p.id = i.parent_id WHERE i.id = $1::bigint
  UNION ALL SELECT p.id, p.parent_id, u.n + 1 FROM up u JOIN "gendurable".gen_durable p ON p.id = u.parent_id WHERE u.n < $5::int),
first AS MATERIALIZED (
  SELECT r.round, unnest((SELECT array_agg(k.id) FROM (SELECT c.id FROM counted c WHERE c.round = r.round ORDER BY c.id LIMIT $4::int) k)) AS id
  FROM (SELECT DISTINCT c.round FROM counted c ORDER BY c.round DESC LIMIT $3::int) r)
SELECT
  (SELECT coalesce(jsonb_agg(to_jsonb(c)), '[]')::text FROM (
    SELECT round, fsm AS machine, status, count(*) FROM counted GROUP BY 1, 2, 3 ORDER BY 1, 2, 3) c),
  (SELECT coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'machine', g.fsm, 'version', g.fsm_version, 'step', g.step, 'status', g.status,
    'paused', g.paused, 'queue', g.queue, 'key', coalesce(g.correlation_key, ''), 'error', left(coalesce(g.last_error, ''), 200)) || jsonb_build_object('round', f.round) ORDER BY f.round DESC, g.id), '[]')::text
    FROM first f JOIN "gendurable".gen_durable g ON g.id = f.id),
  (SELECT coalesce(jsonb_agg(jsonb_build_object('id', g.id, 'machine', g.fsm, 'version', g.fsm_version, 'step', g.step, 'status', g.status,
    'paused', g.paused, 'queue', g.queue, 'key', coalesce(g.correlation_key, ''), 'error', left(coalesce(g.last_error, ''), 200)) ORDER BY u.n), '[]')::text FROM up u JOIN "gendurable".gen_durable g ON g.id = u.id),
  (SELECT coalesce(jsonb_agg(jsonb_build_object('id', m.id, 'name', m.name, 'dedup_key', coalesce(m.dedup_key, ''), 'inserted_at', m.inserted_at,
    'bytes', m.bytes) || CASE WHEN m.until <= $7::bigint THEN jsonb_build_object('payload', m.payload) ELSE '{}' END ORDER BY m.id), '[]')::text
    FROM (SELECT s.*, octet_length(s.payload::text) AS bytes, sum(octet_length(s.payload::text)) OVER (ORDER BY s.id) AS until FROM (
      SELECT i.id, i.name, i.dedup_key, i.inserted_at, i.payload FROM "gendurable".signals i WHERE i.target_id = $1::bigint AND i.consumed_at IS NULL
      ORDER BY i.id LIMIT $6::int) s) m)
