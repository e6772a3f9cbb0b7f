WITH RECURSIVE aside(f, v, s) AS (
  (SELECT g.fsm, g.fsm_version, g.aside_step FROM "gendurable".gen_durable g
   WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 4 ORDER BY g.fsm, g.fsm_version, g.aside_step LIMIT 1)
  UNION ALL
  SELECT n.* FROM aside CROSS JOIN LATERAL (
    SELECT g.fsm, g.fsm_version, g.aside_step FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 4
      AND (g.fsm, g.fsm_version, g.aside_step) > (aside.f, aside.v, aside.s) ORDER BY g.fsm, g.fsm_version, g.aside_step LIMIT 1) n),
known AS MATERIALIZED (SELECT * FROM unnest($2::text[], $3::int[], $4::text[]) AS k(f, v, s))
SELECT r.id FROM (SELECT a.* FROM aside a WHERE EXISTS (SELECT FROM known k WHERE k.f = a.f AND k.v = a.v AND k.s = a.s)) a
CROSS JOIN LATERAL (
  SELECT g.id FROM "gendurable".gen_durable g
  WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 4 AND g.fsm = a.f AND g.fsm_version = a.v AND g.aside_step = a.s
    AND g.eligible_at <= statement_timestamp() AND g.id <> ALL($6::bigint[])
  ORDER BY g.priority, g.eligible_at, g.id LIMIT $5) r
LIMIT $5
