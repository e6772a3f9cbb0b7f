WITH t AS (SELECT now() AS now, now() - $1::bigint * interval '1 microsecond' AS since),
inserted AS MATERIALIZED (
  SELECT g.queue, g.inserted_at AS at FROM "gendurable".gen_durable g ORDER BY g.id DESC LIMIT $3::int),
ended AS MATERIALIZED (
  SELECT g.queue, g.finished_at AS at, g.status = 'failed' AS failed FROM "gendurable".gen_durable g
  WHERE g.finished_at IS NOT NULL AND g.finished_at >= now() - $1::bigint * interval '1 microsecond' ORDER BY g.finished_at DESC LIMIT $3::int),
bins AS (
  SELECT x.queue, date_bin($2::bigint * interval '1 microsecond', x.at, 'epoch'::timestamptz) AS at, sum(x.inserted)::bigint AS inserted,
    sum(x.ended)::bigint AS ended, sum(x.failed)::bigint AS failed
  FROM (
    SELECT i.queue, i.at, 1 AS inserted, 0 AS ended, 0 AS failed FROM inserted i, t WHERE i.at >= t.since AND i.at <= t.now
    UNION ALL SELECT e.queue, e.at, 0, 1, CASE WHEN e.failed THEN 1 ELSE 0 END FROM ended e, t WHERE e.at <= t.now) x
  GROUP BY 1, 2)
SELECT t.now,
  CASE WHEN (SELECT count(*) FROM inserted) < $3::int THEN t.since ELSE greatest(t.since, (SELECT min(at) FROM inserted)) END,
  CASE WHEN (SELECT count(*) FROM ended) < $3::int THEN t.since ELSE greatest(t.since, (SELECT min(at) FROM ended)) END,
  (SELECT coalesce(jsonb_agg(to_jsonb(b)), '[]')::text FROM bins b)
FROM t
