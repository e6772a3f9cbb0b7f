WITH RECURSIVE walk AS (
  SELECT coalesce($8::bigint, (SELECT g.fingerprint FROM "gendurable".gen_durable g WHERE g.fingerprint IS NOT NULL ORDER BY g.fingerprint LIMIT 1)) AS fingerprint, 1 AS nth
  UNION ALL
  SELECT (SELECT g.fingerprint FROM "gendurable".gen_durable g WHERE g.fingerprint > w.fingerprint ORDER BY g.fingerprint LIMIT 1), w.nth + 1
  FROM walk w WHERE $8 IS NULL AND w.fingerprint IS NOT NULL AND w.nth <= $1::int),
many AS MATERIALIZED (SELECT count(w.fingerprint) > $1 AS many FROM walk w),
kinds AS MATERIALIZED (SELECT k.fingerprint FROM (
    SELECT w.fingerprint, NULL::bigint AS newest FROM walk w WHERE w.fingerprint IS NOT NULL
    UNION ALL
    SELECT n.fingerprint, n.id FROM (SELECT g.fingerprint, g.id FROM "gendurable".gen_durable g
      WHERE g.status = 'failed' AND (SELECT m.many FROM many m) ORDER BY g.id DESC LIMIT 1000) n) k
  GROUP BY k.fingerprint ORDER BY max(k.newest) DESC NULLS LAST LIMIT $1),
heads AS MATERIALIZED (SELECT array_agg(h.fingerprint ORDER BY h.id DESC) AS fingerprints FROM kinds k CROSS JOIN LATERAL (
    SELECT g.fingerprint, g.id, g.fsm, g.queue FROM "gendurable".gen_durable g WHERE g.fingerprint = k.fingerprint ORDER BY g.id DESC LIMIT 1) h
  WHERE ($4::text IS NULL OR h.fsm = $4) AND ($5::text IS NULL OR h.queue = $5)
    AND ($9::text[] IS NULL OR h.queue = ANY($9)) AND ($10::text[] IS NULL OR h.fsm = ANY($10))),
counted AS (
  SELECT 0 AS nth, NULL::bigint AS fingerprint, $2::bigint AS rest, 0::bigint AS n, false AS at_least, NULL::timestamptz AS first, NULL::timestamptz AS last,
    NULL::bigint AS newest
  UNION ALL
  SELECT c.nth + 1, h.fingerprints[c.nth + 1], c.rest - v.seen, v.n, v.seen >= m.most, v.first, v.last, v.newest
  FROM counted c CROSS JOIN heads h
  CROSS JOIN LATERAL (SELECT least($3::bigint, greatest(10, c.rest - 10 * (cardinality(h.fingerprints) - c.nth - 1))) AS most) m
  CROSS JOIN LATERAL (
    SELECT count(*) AS seen, count(*) FILTER (WHERE x.fits) AS n, min(x.finished_at) FILTER (WHERE x.fits) AS first,
      max(x.finished_at) FILTER (WHERE x.fits) AS last, (array_agg(x.id ORDER BY x.finished_at DESC, x.id DESC) FILTER (WHERE x.fits))[1] AS newest
    FROM (SELECT g.id, g.finished_at, g.finished_at >= coalesce($6::timestamptz, '-infinity') AS fits
      FROM "gendurable".gen_durable g WHERE g.fingerprint = h.fingerprints[c.nth + 1] ORDER BY g.id DESC LIMIT m.most) x) v
  WHERE c.nth < cardinality(h.fingerprints))
SELECT t.looked, t.since, t.more, coalesce(f.fingerprint, 0), coalesce(f.fsm, ''), coalesce(f.fsm_version, 0), coalesce(f.step, ''), coalesce(f.queue, ''),
  coalesce(f.failure, ''), coalesce(f.error, ''), coalesce(f.n, 0), coalesce(f.at_least, false), coalesce(f.first, 'epoch'), coalesce(f.last, 'epoch'),
  coalesce(f.newest, 0)
FROM (SELECT coalesce(sum(c.n), 0)::bigint AS looked, min(c.first) AS since,
    (SELECT m.many FROM many m) OR coalesce(bool_or(c.at_least AND c.n = 0), false) AS more FROM counted c) t
LEFT JOIN (
  SELECT c.fingerprint, c.n, c.at_least, c.first, c.last, c.newest, g.fsm, g.fsm_version, g.step, g.queue, g.failure, left(g.last_error, 200) AS error
  FROM (SELECT * FROM counted WHERE n > 0 ORDER BY n DESC, last DESC, newest DESC LIMIT $7::int) c
  CROSS JOIN LATERAL (SELECT * FROM "gendurable".gen_durable g WHERE g.id = c.newest OFFSET 0) g) f ON true
ORDER BY f.n DESC, f.last DESC, f.newest DESC
