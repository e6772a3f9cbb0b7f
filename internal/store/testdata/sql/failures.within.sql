WITH seen AS MATERIALIZED (
  SELECT g.id, g.fsm, g.fsm_version, g.step, g.queue, g.status, g.failure, left(coalesce(g.last_error, ''), 200) AS error, g.finished_at,
    coalesce(($6::text[] IS NULL OR g.queue = ANY($6)) AND ($7::text[] IS NULL OR g.fsm = ANY($7))
      AND ($8::jsonb IS NULL OR g.labels @> $8), false) AS within
  FROM "gendurable".gen_durable g WHERE g.finished_at IS NOT NULL AND g.finished_at >= coalesce($4::timestamptz, '-infinity')
  ORDER BY g.finished_at DESC LIMIT $1::int)
SELECT t.looked, t.since, coalesce(f.fsm, ''), coalesce(f.fsm_version, 0), coalesce(f.step, ''), coalesce(f.queue, ''), coalesce(f.failure, ''),
  coalesce(f.error, ''), coalesce(f.n, 0), coalesce(f.first, 'epoch'), coalesce(f.last, 'epoch'), coalesce(f.newest, 0), t.more
FROM (SELECT count(*) AS looked, min(finished_at) AS since, (SELECT count(*) >= $1::int FROM seen) AS more FROM seen WHERE within) t
LEFT JOIN (
  SELECT fsm, fsm_version, step, queue, coalesce(failure, '') AS failure, (array_agg(error ORDER BY finished_at DESC, id DESC))[1] AS error,
    count(*) AS n, min(finished_at) AS first, max(finished_at) AS last, (array_agg(id ORDER BY finished_at DESC, id DESC))[1] AS newest
  FROM seen WHERE within AND status = 'failed' AND ($2::text IS NULL OR fsm = $2) AND ($3::text IS NULL OR queue = $3)
  GROUP BY fsm, fsm_version, step, queue, coalesce(failure, ''), regexp_replace(error, '[0-9]+', '#', 'g')
  ORDER BY n DESC, last DESC, newest DESC LIMIT $5::int) f ON true
ORDER BY f.n DESC, f.last DESC, f.newest DESC
