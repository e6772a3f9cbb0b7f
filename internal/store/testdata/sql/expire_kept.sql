WITH d AS (DELETE FROM "gendurable".kept_signals k WHERE k.id = ANY(ARRAY(
    SELECT x.id FROM "gendurable".kept_signals x WHERE x.expires_at <= (SELECT clock_timestamp())
      AND NOT EXISTS (SELECT FROM "gendurable".gen_durable g WHERE g.correlation_guard = x.key AND g.status NOT IN ('done', 'failed')
        AND g.inserted_at < x.expires_at OFFSET 0)
    ORDER BY x.expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED))
  RETURNING k.id)
SELECT count(*) FROM d
