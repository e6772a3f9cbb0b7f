
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS at),
w AS MATERIALIZED (
  SELECT g.id, coalesce(g.status IN ('awaiting_signal', 'awaiting_children') AND $1::text = ANY(g.awaits), false) AS woken, coalesce(g.status IN ('awaiting_signal', 'awaiting_children') AND $1::text = ANY(g.awaits), false) AND NOT g.paused AND g.partition_key IS NULL
    AND g.queue = ANY($4::text[]) AND (g.fsm || '/' || g.fsm_version) = ANY($5::text[]) AS taken
  FROM "gendurable".gen_durable g WHERE g.id = nullif(current_setting('gendurable.target'), '')::bigint),
u AS (
  UPDATE "gendurable".gen_durable g SET
    status = CASE WHEN w.taken THEN 'executing' WHEN w.woken THEN 'runnable' ELSE g.status END,
    eligible_at = CASE WHEN w.woken THEN clock.at ELSE g.eligible_at END,
    await_deadline = CASE WHEN w.woken THEN NULL ELSE g.await_deadline END,
    pick_lane = CASE WHEN w.woken THEN 0 ELSE g.pick_lane END,
    locked_by = CASE WHEN w.taken THEN $2::text ELSE g.locked_by END,
    lease_expires_at = CASE WHEN w.taken THEN (SELECT clock_timestamp()) + $3::bigint * interval '1 microsecond' ELSE g.lease_expires_at END,
    claim_token = CASE WHEN w.taken THEN "gendurable".gen_durable_draw('"gendurable".gen_durable_token') ELSE g.claim_token END,
    updated_at = CASE WHEN w.woken THEN clock.at ELSE g.updated_at END
  FROM w CROSS JOIN clock WHERE g.id = w.id
  RETURNING CASE WHEN w.taken THEN g.id END AS id),
sum AS MATERIALIZED (SELECT coalesce('{' || min(u.id)::text || '}', '{}') AS ids FROM u)
SELECT sum.ids <> '{}', length(set_config('gendurable.target', '', true) || set_config('gendurable.claimed', sum.ids, false) ||
  set_config('gendurable.awaiting', sum.ids, false) || set_config('gendurable.fencing', '{}', false) ||
  set_config('gendurable.unsettled', '{}', false))
FROM sum
