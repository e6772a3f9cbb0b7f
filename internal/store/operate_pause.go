package store

// pauseSQL takes live instances out of the pick, since the pick's indexes contain no paused row. It
// changes nothing else. A signal, a timeout or the last child still wakes a paused instance, which
// then waits as runnable. An executing one goes on until its claim ends, and the heartbeat tells
// its worker not to run ahead. updated_at stays, too, since Why reads from it since when an
// instance is parked. $1 ids, locked
var pauseSQL = named("pause", `UPDATE {s}.gen_durable g SET paused = true,
  gate = CASE WHEN g.status = 'executing' THEN g.gate END, place = CASE WHEN g.status = 'executing' THEN g.place END,
  seat = CASE WHEN g.status = 'executing' THEN g.seat END,
  pick_lane = CASE WHEN g.pick_lane = {lane line} THEN {lane front} ELSE g.pick_lane END
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND NOT g.paused AND coalesce(g.status NOT IN ('done', 'failed'), false)
RETURNING g.id`)

// resumeSQL puts paused instances back. They get lane front: a place behind a key, or aside, that
// one may have had is out of date. $1 ids, locked
var resumeSQL = named("resume", `UPDATE {s}.gen_durable g SET paused = false, pick_lane = `+frontAgain+`
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.paused AND coalesce(g.status NOT IN ('done', 'failed'), false)
RETURNING g.id`)
