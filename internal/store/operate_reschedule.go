package store

// runNowSQL makes waiting runnable instances eligible at once. $1 ids, locked
var runNowSQL = named("run now", `UPDATE {s}.gen_durable g SET eligible_at = least(g.eligible_at, (SELECT clock_timestamp())), pick_lane = `+frontAgain+`,
  gate = NULL, place = NULL, seat = NULL, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'runnable', false)
RETURNING g.id`)

// rescheduleSQL makes runnable instances eligible at a time, or now if that is past. $1 ids, locked
// $2 time
var rescheduleSQL = named("reschedule", `UPDATE {s}.gen_durable g SET eligible_at = greatest($2::timestamptz, (SELECT clock_timestamp())), pick_lane = `+frontAgain+`,
  gate = NULL, place = NULL, seat = NULL, updated_at = (SELECT clock_timestamp())
FROM unnest($1::bigint[]) AS u(id)
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM {s}.gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND coalesce(g.status = 'runnable', false)
RETURNING g.id`)
