UPDATE "gendurable".gen_durable g SET status = CASE WHEN u.waits THEN 'awaiting_children'::"gendurable".durable_status ELSE 'runnable' END,
  failure = NULL, finished_at = NULL, paused = g.paused AND g.finished_at IS NULL, joined = CASE WHEN u.counted THEN NULL ELSE g.joined END,
  pick_lane = CASE WHEN u.unmet > 0 AND NOT u.waits THEN 5 ELSE 0 END, gate = NULL, place = NULL, seat = NULL, run_gate = NULL, run_place = NULL, locked_by = NULL, lease_expires_at = NULL,
  attempt = 0, crashes = 0, commit_id = CASE WHEN u.unmet IS NULL THEN g.commit_id END, last_error = CASE WHEN u.waits THEN NULL ELSE g.last_error END, await_deadline = NULL,
  deadline = CASE WHEN g.finished_at IS NULL OR g.deadline > (SELECT clock_timestamp()) THEN g.deadline END,
  children_pending = coalesce(u.pending, g.children_pending),
  join_size = CASE WHEN u.unmet IS NOT NULL OR u.round AND g.join_round >= g.round THEN coalesce(u.size, g.join_size) ELSE g.join_size END,
  join_done = CASE WHEN u.unmet IS NOT NULL OR u.round AND g.join_round >= g.round THEN coalesce(u.done, g.join_done) ELSE g.join_done END,
  join_failed = CASE WHEN u.unmet IS NOT NULL THEN u.unmet WHEN u.round AND g.join_round >= g.round THEN u.size - u.pending - u.done - u.skipped
    ELSE g.join_failed END,
  wake_done = CASE WHEN NOT u.round THEN g.wake_done END, wake_failed = CASE WHEN NOT u.round THEN g.wake_failed END,
  wake_ended = CASE WHEN NOT u.round THEN g.wake_ended END, awaits = CASE WHEN NOT u.round THEN g.awaits END,
  timed_out = g.timed_out AND NOT u.round,
  losers = CASE WHEN NOT u.round THEN g.losers
    ELSE nullif(array_remove(array_remove(g.losers, g.round), -g.round), '{}') END,
  graphs = CASE WHEN u.round AND u.graph THEN array_append(array_remove(g.graphs, g.round), g.round) ELSE g.graphs END,
  eligible_at = CASE WHEN u.waits AND g.finished_at IS NULL THEN g.eligible_at ELSE (SELECT clock_timestamp()) END,
  updated_at = (SELECT clock_timestamp())
FROM (SELECT unnest($1::bigint[]) AS id, unnest($2::boolean[]) AS waits, unnest($3::int[]) AS pending, unnest($4::int[]) AS unmet,
  unnest($5::int[]) AS size, unnest($6::int[]) AS done, unnest($7::boolean[]) AS round, unnest($8::boolean[]) AS graph, unnest($9::boolean[]) AS counted,
  unnest($10::int[]) AS skipped) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id FOR NO KEY UPDATE SKIP LOCKED) l
WHERE g.ctid = l.tid AND g.status <> 'done'
RETURNING g.id
