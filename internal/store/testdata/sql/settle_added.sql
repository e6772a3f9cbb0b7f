WITH woken AS (
  UPDATE "gendurable".gen_durable p SET children_pending = greatest(p.children_pending - d.n - l.enough, 0),
    join_failed = coalesce(p.join_failed, 0) + d.n - d.ok + l.lost, join_done = p.join_done + d.yes, join_size = p.join_size - d.more,
    status = CASE WHEN l.wakes THEN 'runnable' ELSE p.status END,
    eligible_at = CASE WHEN l.wakes THEN greatest(p.eligible_at, (SELECT clock_timestamp())) ELSE p.eligible_at END,
    updated_at = CASE WHEN l.wakes THEN (SELECT clock_timestamp()) ELSE p.updated_at END,
    pick_lane = CASE WHEN d.ok < d.n OR l.lost > 0 THEN 5 ELSE 0 END
  FROM (SELECT e.to_id, count(*) FILTER (WHERE e.needs < 3)::int AS n,
      count(*) FILTER (WHERE e.needs = 1 OR e.needs < 3 AND (e.needs = 0) = (k.status = 'done'))::int AS ok,
      count(*) FILTER (WHERE e.needs = 3)::int AS more, count(*) FILTER (WHERE e.needs = 3 AND k.status = 'done')::int AS yes
    FROM unnest($1::bigint[], $3::bigint[]) AS u(id, to_id)
    CROSS JOIN LATERAL (SELECT x.joined, x.status FROM "gendurable".gen_durable x WHERE x.id = u.id OFFSET 0) k
    CROSS JOIN LATERAL (SELECT e.to_id, e.needs FROM "gendurable".edges e WHERE e.from_id = u.id AND e.to_id = u.to_id OFFSET 0) e
    WHERE k.joined <> $2::uuid GROUP BY 1) d
  CROSS JOIN LATERAL (SELECT x.ctid AS tid, coalesce(x.join_done < x.wake_done AND x.join_done + d.yes >= x.wake_done, false)::int AS enough, coalesce(x.join_done + d.yes + x.join_size - d.more < x.wake_done, false)::int AS lost,
      x.children_pending <= d.n + coalesce(x.join_done < x.wake_done AND x.join_done + d.yes >= x.wake_done, false)::int OR d.ok < d.n OR coalesce(x.join_done + d.yes + x.join_size - d.more < x.wake_done, false) AS wakes
    FROM "gendurable".gen_durable x WHERE x.id = d.to_id AND coalesce(x.status = 'awaiting_children' AND x.visit = 0 AND x.node IS NOT NULL, false) FOR NO KEY UPDATE) l
  WHERE p.ctid = l.tid
  RETURNING p.queue, p.status, p.pick_lane)
SELECT queue, pick_lane = 5 FROM woken WHERE status = 'runnable'
