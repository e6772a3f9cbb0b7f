WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now, pg_try_advisory_xact_lock($2::bigint) AS alone),
p AS MATERIALIZED (SELECT w.name FROM "gendurable".windows w WHERE (SELECT alone FROM c) AND w.name > $1::text ORDER BY w.name LIMIT $3::bigint),
l AS MATERIALIZED (
  SELECT w.name FROM "gendurable".windows w WHERE w.name = ANY(ARRAY(SELECT p.name FROM p)) AND w.until < (SELECT now FROM c) - interval '1 minute'
    AND NOT (w.name LIKE 'debounce:%' AND EXISTS (SELECT FROM "gendurable".gen_durable g WHERE g.id = w.instance AND coalesce(g.status = 'runnable' AND g.claim_token = 0, false) OFFSET 0))
  ORDER BY w.name FOR UPDATE SKIP LOCKED),
d AS (DELETE FROM "gendurable".windows w WHERE w.name = ANY(ARRAY(SELECT l.name FROM l)) RETURNING w.name)
SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM p), coalesce((SELECT max(p.name) FROM p), '')
