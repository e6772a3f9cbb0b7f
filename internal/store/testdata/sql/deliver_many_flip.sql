
WITH c AS MATERIALIZED (SELECT statement_timestamp() AS at),
m AS MATERIALIZED (
  SELECT m.id, array_agg(m.name) AS names FROM unnest(current_setting('gendurable.targets')::bigint[], $1::text[]) m (id, name)
  WHERE m.id IS NOT NULL GROUP BY m.id),
u AS (
  UPDATE "gendurable".gen_durable g SET status = 'runnable', eligible_at = (SELECT at FROM c), await_deadline = NULL, pick_lane = 0,
    updated_at = (SELECT at FROM c)
  FROM m WHERE g.id = m.id AND g.status IN ('awaiting_signal', 'awaiting_children') AND g.awaits && m.names
  RETURNING g.id),
s AS MATERIALIZED (SELECT length(set_config('gendurable.targets', '', true)) + n.n AS set FROM (SELECT count(*) AS n FROM u) n)
SELECT u.id, s.set FROM s LEFT JOIN u ON true
