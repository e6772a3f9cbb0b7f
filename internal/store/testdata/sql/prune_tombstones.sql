WITH c AS MATERIALIZED (SELECT pg_try_advisory_xact_lock($4::bigint) AS alone),
t AS MATERIALIZED (SELECT g.id FROM "gendurable".gen_durable g WHERE g.id = $1::bigint AND (SELECT alone FROM c) FOR NO KEY UPDATE SKIP LOCKED),
d AS (
  DELETE FROM "gendurable".signals s WHERE s.id = ANY(ARRAY(
    SELECT x.id FROM "gendurable".signals x WHERE x.target_id = (SELECT id FROM t) AND x.consumed_at IS NOT NULL
    ORDER BY x.consumed_at DESC, x.id DESC OFFSET $2::bigint LIMIT $3::bigint))
  RETURNING s.id)
SELECT c.alone, (SELECT count(*) FROM d) FROM c
