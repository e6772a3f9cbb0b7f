UPDATE "gendurable".gen_durable g SET join_round = g.visit, join_size = u.size, join_done = u.ok, join_failed = u.bad,
  children_pending = u.size - u.ok - u.bad - u.skipped, wake_done = u.ok + u.done - greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0), wake_failed = u.bad + u.failed - greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0),
  wake_ended = u.ok + u.bad + u.ended - CASE WHEN u.stream IS NULL THEN greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) ELSE u.unshown END, stream_most = u.stream,
  awaits = ($10::text[])[u.lo:u.hi],
  losers = CASE WHEN u.cancels AND NOT coalesce(g.round = ANY(g.losers) OR -g.round = ANY(g.losers), false) THEN array_append(g.losers, g.round)
    ELSE array_replace(g.losers, g.round, -g.round) END,
  status = CASE WHEN (u.size = u.ok + u.bad + u.skipped OR coalesce(
      greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) >= u.done OR greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + u.size - u.ok - u.bad - u.skipped < u.done
      OR greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) >= u.failed OR CASE WHEN u.stream IS NULL THEN greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) ELSE u.unshown END >= u.ended, false)) THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN (u.size = u.ok + u.bad + u.skipped OR coalesce(
      greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) >= u.done OR greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + u.size - u.ok - u.bad - u.skipped < u.done
      OR greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) >= u.failed OR CASE WHEN u.stream IS NULL THEN greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) ELSE u.unshown END >= u.ended, false)) THEN (SELECT clock_timestamp()) ELSE g.eligible_at END,
  updated_at = CASE WHEN (u.size = u.ok + u.bad + u.skipped OR coalesce(
      greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) >= u.done OR greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + u.size - u.ok - u.bad - u.skipped < u.done
      OR greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) >= u.failed OR CASE WHEN u.stream IS NULL THEN greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) ELSE u.unshown END >= u.ended, false)) THEN (SELECT clock_timestamp()) ELSE g.updated_at END,
  await_deadline = CASE WHEN (u.size = u.ok + u.bad + u.skipped OR coalesce(
      greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) >= u.done OR greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + u.size - u.ok - u.bad - u.skipped < u.done
      OR greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) >= u.failed OR CASE WHEN u.stream IS NULL THEN greatest(u.ok - coalesce(u.seen_done, g.join_done, 0), 0) + greatest(u.bad - coalesce(u.seen_failed, g.join_failed, 0), 0) ELSE u.unshown END >= u.ended, false)) THEN NULL WHEN u.at IS NOT NULL THEN u.at
    WHEN u.us IS NOT NULL THEN (SELECT clock_timestamp()) + u.us * interval '1 microsecond' END
FROM (SELECT t.*, c.* FROM (
  SELECT unnest($1::bigint[]) AS id, unnest($3::int[]) AS done, unnest($4::int[]) AS failed, unnest($5::int[]) AS ended,
    unnest($6::bigint[]) AS us, unnest($7::timestamptz[]) AS at, unnest($8::int[]) AS lo, unnest($9::int[]) AS hi, unnest($11::boolean[]) AS cancels,
    unnest($12::bigint[]) AS round, unnest($13::int[]) AS seen_done, unnest($14::int[]) AS seen_failed,
    unnest($15::int[]) AS stream) t
  CROSS JOIN LATERAL (SELECT count(*)::int AS size, count(*) FILTER (WHERE NOT (k.joined IS NOT NULL AND (k.finished_at IS NULL OR coalesce(k.joined <> k.commit_id, false))) AND k.joined <> $2::uuid AND k.status = 'done')::int AS ok,
      count(*) FILTER (WHERE k.joined <> $2::uuid AND (k.status <> 'done' AND k.failure IS DISTINCT FROM 'skipped' OR (k.joined IS NOT NULL AND (k.finished_at IS NULL OR coalesce(k.joined <> k.commit_id, false)))))::int AS bad,
      count(*) FILTER (WHERE NOT (k.joined IS NOT NULL AND (k.finished_at IS NULL OR coalesce(k.joined <> k.commit_id, false))) AND k.joined <> $2::uuid AND k.failure = 'skipped')::int AS skipped,
      count(*) FILTER (WHERE k.joined <> $2::uuid AND k.stream_visit IS NULL)::int AS unshown
    FROM "gendurable".gen_durable k WHERE k.parent_id = t.id AND k.parent_round = t.round) c OFFSET 0) u
CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id AND x.commit_id = $2::uuid OFFSET 0) l
WHERE g.ctid = l.tid
RETURNING g.queue, g.status = 'runnable'
