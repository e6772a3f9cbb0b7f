package store

// The head of a partition key in one queue is the first, by (priority, eligible_at, id), of its
// rows that may run now. Only the head may be claimed (§6). Claim, promotion and sweep must agree
// exactly on which row that is, so they share this text.
//
// The first row in index order is the head if it is due. If it is not (a delayed row at an urgent
// priority), the text visits the key's priorities one by one, so that a hundred thousand delayed
// rows cost one probe (T94).
func headOf(key, queue, now string) string {
	return `(
    SELECT f.id, f.pick_lane FROM (
      SELECT g.id, g.pick_lane, g.eligible_at FROM {s}.gen_durable g
      WHERE g.partition_key = ` + key + ` AND g.queue = ` + queue + ` AND g.status = 'runnable' AND NOT g.paused
      ORDER BY g.priority, g.eligible_at, g.id LIMIT 1) f
    WHERE f.eligible_at <= ` + now + `
    UNION ALL
    SELECT r.id, r.pick_lane FROM (
      WITH RECURSIVE level(p) AS (
        (SELECT g.priority FROM {s}.gen_durable g
         WHERE g.partition_key = ` + key + ` AND g.queue = ` + queue + ` AND g.status = 'runnable' AND NOT g.paused
         ORDER BY g.priority LIMIT 1)
        UNION ALL
        SELECT (SELECT g.priority FROM {s}.gen_durable g
          WHERE g.partition_key = ` + key + ` AND g.queue = ` + queue + ` AND g.status = 'runnable' AND NOT g.paused AND g.priority > level.p
          ORDER BY g.priority LIMIT 1)
        FROM level WHERE level.p IS NOT NULL)
      SELECT h.id, h.pick_lane FROM level CROSS JOIN LATERAL (
        SELECT g.id, g.pick_lane FROM {s}.gen_durable g
        WHERE g.partition_key = ` + key + ` AND g.queue = ` + queue + ` AND g.status = 'runnable' AND NOT g.paused
          AND g.priority = level.p AND g.eligible_at <= ` + now + `
        ORDER BY g.eligible_at, g.id LIMIT 1) h
      WHERE level.p IS NOT NULL LIMIT 1) r
    LIMIT 1)`
}

// queuesOf lists the queues in which a key has rows that may run, now or later, by a loose index
// scan.
func queuesOf(key string) string {
	return `(
    WITH RECURSIVE queues(q) AS (
      (SELECT g.queue FROM {s}.gen_durable g WHERE g.partition_key = ` + key + ` AND g.status = 'runnable' AND NOT g.paused ORDER BY g.queue LIMIT 1)
      UNION ALL
      SELECT (SELECT g.queue FROM {s}.gen_durable g
        WHERE g.partition_key = ` + key + ` AND g.status = 'runnable' AND NOT g.paused AND g.queue > queues.q ORDER BY g.queue LIMIT 1)
      FROM queues WHERE queues.q IS NOT NULL)
    SELECT queues.q FROM queues WHERE queues.q IS NOT NULL)`
}
