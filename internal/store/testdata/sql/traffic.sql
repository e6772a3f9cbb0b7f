WITH RECURSIVE c AS (SELECT clock_timestamp() AS now),
ready AS (
  (SELECT queue FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 0 ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = 0 AND g.queue > r.queue
    ORDER BY g.queue LIMIT 1) FROM ready r WHERE r.queue IS NOT NULL),
aside AS (
  (SELECT queue FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 2 ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = 2 AND g.queue > a.queue
    ORDER BY g.queue LIMIT 1) FROM aside a WHERE a.queue IS NOT NULL),
stray AS (
  (SELECT queue FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 4 ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = 4 AND g.queue > t.queue
    ORDER BY g.queue LIMIT 1) FROM stray t WHERE t.queue IS NOT NULL),
lined AS (
  (SELECT queue FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 3 ORDER BY queue LIMIT 1)
  UNION ALL SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE status = 'runnable' AND NOT paused AND pick_lane = 3 AND g.queue > l.queue
    ORDER BY g.queue LIMIT 1) FROM lined l WHERE l.queue IS NOT NULL),
seen(queue, eligible_at, number, in_line) AS (
  SELECT r.queue, s.eligible_at, s.number, false FROM ready r, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 0 AND queue = r.queue
      ORDER BY priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT a.queue, s.eligible_at, s.number, false FROM aside a, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 2 AND queue = a.queue
      ORDER BY fsm, fsm_version, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT t.queue, s.eligible_at, s.number, false FROM stray t, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 4 AND queue = t.queue
      ORDER BY fsm, fsm_version, aside_step, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT l.queue, s.eligible_at, s.number, true FROM lined l, LATERAL (
    SELECT eligible_at, row_number() OVER () AS number FROM (
      SELECT eligible_at FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND pick_lane = 3 AND queue = l.queue
      ORDER BY gate USING ~<~, priority, eligible_at, id LIMIT $1) i) s
  UNION ALL SELECT k.queue, k.eligible_at, k.walked, false FROM (
    SELECT queue, eligible_at, pick_lane, count(*) OVER () AS walked FROM (
      SELECT queue, eligible_at, pick_lane FROM "gendurable".gen_durable WHERE status = 'runnable' AND NOT paused AND partition_key IS NOT NULL
      ORDER BY partition_key, queue, priority, eligible_at, id LIMIT $1) i) k WHERE k.pick_lane = 1)
SELECT c.now,
  (SELECT coalesce(jsonb_agg(to_jsonb(q)), '[]')::text FROM (
    SELECT queue, count(*) FILTER (WHERE eligible_at <= c.now AND NOT in_line) AS due, count(*) FILTER (WHERE eligible_at > c.now AND NOT in_line) AS delayed,
      count(*) FILTER (WHERE in_line) AS in_line, min(eligible_at) FILTER (WHERE eligible_at <= c.now AND NOT in_line) AS oldest, bool_or(number >= $1) AS at_least
    FROM seen GROUP BY queue) q),
  (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]')::text FROM (
    SELECT queue, coalesce(locked_by, '') AS worker, count(*) AS count FROM "gendurable".gen_durable WHERE status = 'executing' GROUP BY 1, 2) x),
  (SELECT coalesce(jsonb_agg(to_jsonb(w) ORDER BY w.started_at, w.id), '[]')::text FROM "gendurable".workers w),
  (SELECT coalesce(jsonb_object_agg(p.queue, p.paused_at), '{}')::text FROM "gendurable".paused_queues p)
FROM c
