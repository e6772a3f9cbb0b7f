UPDATE "gendurable".gen_durable g SET children_pending = g.children_pending - u.n, dropped = u.dropped::jsonb,
  join_size = CASE WHEN g.join_round = abs(g.round) THEN g.join_size - u.n ELSE g.join_size END,
  status = CASE WHEN (g.children_pending <= u.n OR coalesce(g.join_round = g.round AND g.children_pending - u.n < g.wake_done, false)) THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN (g.children_pending <= u.n OR coalesce(g.join_round = g.round AND g.children_pending - u.n < g.wake_done, false)) THEN (SELECT clock_timestamp()) ELSE g.eligible_at END,
  updated_at = CASE WHEN (g.children_pending <= u.n OR coalesce(g.join_round = g.round AND g.children_pending - u.n < g.wake_done, false)) THEN (SELECT clock_timestamp()) ELSE g.updated_at END,
  await_deadline = CASE WHEN (g.children_pending <= u.n OR coalesce(g.join_round = g.round AND g.children_pending - u.n < g.wake_done, false)) THEN NULL ELSE g.await_deadline END
FROM unnest($1::bigint[], $3::int[], $4::text[]) AS u(id, n, dropped)
WHERE g.id = u.id AND g.commit_id = $2::uuid
RETURNING g.queue
