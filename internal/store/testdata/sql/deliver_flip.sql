
WITH clock AS MATERIALIZED (SELECT statement_timestamp() AS at)
UPDATE "gendurable".gen_durable g SET
  status = CASE WHEN g.status IN ('awaiting_signal', 'awaiting_children') AND $1::text = ANY(g.awaits) THEN 'runnable' ELSE g.status END,
  eligible_at = CASE WHEN g.status IN ('awaiting_signal', 'awaiting_children') AND $1::text = ANY(g.awaits) THEN clock.at ELSE g.eligible_at END,
  await_deadline = CASE WHEN g.status IN ('awaiting_signal', 'awaiting_children') AND $1::text = ANY(g.awaits) THEN NULL ELSE g.await_deadline END,
  pick_lane = CASE WHEN g.status IN ('awaiting_signal', 'awaiting_children') AND $1::text = ANY(g.awaits) THEN 0 ELSE g.pick_lane END,
  updated_at = CASE WHEN g.status IN ('awaiting_signal', 'awaiting_children') AND $1::text = ANY(g.awaits) THEN clock.at ELSE g.updated_at END
FROM clock WHERE g.id = nullif(current_setting('gendurable.target'), '')::bigint
RETURNING set_config('gendurable.target', '', true)
