WITH numbered AS (
  UPDATE "gendurable".gen_durable k SET stream_nth = "gendurable".gen_durable_draw('"gendurable".gen_durable_id_draw') FROM unnest($1::bigint[]) AS u(id)
  CROSS JOIN LATERAL (SELECT x.ctid AS tid FROM "gendurable".gen_durable x WHERE x.id = u.id AND x.joined = $2::uuid AND x.parent_round < 0 OFFSET 0) n
  WHERE k.ctid = n.tid),
l AS MATERIALIZED (
  SELECT d.*, l.* FROM (SELECT k.parent_id, k.parent_round, count(*)::int AS n, count(*) FILTER (WHERE k.status = 'done')::int AS ok,
      count(*) FILTER (WHERE k.status <> 'done' AND k.failure <> 'skipped')::int AS bad FROM unnest($1::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT x.parent_id, x.parent_round, x.joined, x.status, coalesce(x.failure, '') AS failure FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) k
    WHERE k.joined = $2::uuid GROUP BY 1, 2) d
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, (x.children_pending <= d.n
      OR coalesce(x.join_round >= x.round AND (
        x.join_done + d.ok >= x.wake_done OR x.join_done + d.ok + x.children_pending - d.n < x.wake_done
        OR x.join_failed + d.bad >= x.wake_failed OR x.join_done + d.ok + x.join_failed + d.bad >= x.wake_ended), false)) AS wakes, x.queue,
      x.status = 'runnable' AND NOT x.paused AND x.eligible_at <= (SELECT clock_timestamp()) AS due
    FROM "gendurable".gen_durable x WHERE x.id = d.parent_id FOR NO KEY UPDATE) l),
woken AS (
  UPDATE "gendurable".gen_durable p SET children_pending = p.children_pending - l.n,
    join_done = CASE WHEN p.join_round >= p.round THEN p.join_done + l.ok ELSE p.join_done END,
    join_failed = CASE WHEN p.join_round >= p.round THEN p.join_failed + l.bad ELSE p.join_failed END,
    status = CASE WHEN l.wakes THEN 'runnable' ELSE p.status END,
    eligible_at = CASE WHEN l.wakes THEN (SELECT clock_timestamp()) ELSE p.eligible_at END,
    updated_at = CASE WHEN l.wakes THEN (SELECT clock_timestamp()) ELSE p.updated_at END,
    await_deadline = CASE WHEN l.wakes THEN NULL ELSE p.await_deadline END,
    pick_lane = 0
  FROM l WHERE p.ctid = l.tid AND p.round = l.parent_round AND p.status = 'awaiting_children'
  RETURNING p.queue, p.status, p.losers IS NOT NULL AS rest)
SELECT queue, rest FROM woken WHERE status = 'runnable' UNION ALL SELECT queue, false FROM l WHERE due
