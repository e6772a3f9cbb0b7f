SELECT length(set_config('gendurable.gates', coalesce(array_agg(x.name) FILTER (WHERE x.mine), '{}')::text, false) ||
    set_config('gendurable.claimed', '{}', false) || set_config('gendurable.awaiting', '{}', false) ||
    set_config('gendurable.fencing', '{}', false) || set_config('gendurable.unsettled', '{}', false) ||
    set_config('gendurable.lined', '{}', false) || set_config('gendurable.seats', '', false) || set_config('gendurable.unpaid', $3::text[]::text, false)), coalesce(bool_or(NOT x.mine), false)
FROM (SELECT l.name, pg_try_advisory_xact_lock(hashtextextended('gendurable gate ' || l.name || ' of ' || $2::text, 0)) AS mine FROM (
  SELECT r.name FROM "gendurable".gates r WHERE coalesce(r.queue = $1, true) AND ((r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) OR (
    SELECT g.id FROM "gendurable".gen_durable g
    WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ r.name AND g.gate ~<~ (r.name || '0') ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) IS NOT NULL)
  ORDER BY r.name COLLATE "C" OFFSET 0) l) x
