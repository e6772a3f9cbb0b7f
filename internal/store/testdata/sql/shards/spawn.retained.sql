WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now),
p AS MATERIALIZED (
  SELECT ARRAY(SELECT coalesce((SELECT x.round FROM "gendurable".gen_durable x WHERE x.id = u.id AND x.commit_id = $19::uuid), 0)
    FROM unnest($20::bigint[]) WITH ORDINALITY AS u(id, n) ORDER BY u.n) AS rounds)
INSERT INTO "gendurable".gen_durable (id, uid, fsm, fsm_version, step, queue, priority, state, partition_key, correlation_key, correlation_scope,
  eligible_at, pick_lane, labels, trace, deadline, retain, parent_id, parent_round, depth)
OVERRIDING SYSTEM VALUE
SELECT r.id, r.uid, coalesce(r.fsm, ($2::text[])[1]), coalesce(r.ver, ($3::int[])[1]), coalesce(r.step, ($4::text[])[1]), coalesce(r.queue, ($5::text[])[1]), coalesce(r.prio, ($6::smallint[])[1]), r.state::jsonb, r.part, r.key,
  CASE WHEN r.key IS NULL THEN '{}'::"gendurable".durable_status[] ELSE CASE coalesce(r.scope, ($10::smallint[])[1])
    WHEN 0 THEN '{runnable,executing,awaiting_signal,awaiting_children}'::"gendurable".durable_status[]
    WHEN 1 THEN '{runnable,executing,awaiting_signal,awaiting_children,done}'::"gendurable".durable_status[]
    WHEN 2 THEN '{runnable,executing,awaiting_signal,awaiting_children,failed}'::"gendurable".durable_status[]
    WHEN 3 THEN '{runnable,executing,awaiting_signal,awaiting_children,done,failed}'::"gendurable".durable_status[]
    ELSE '{}'::"gendurable".durable_status[] END END, greatest(coalesce(r.at, (SELECT now FROM c) + r.us * interval '1 microsecond'), (SELECT now FROM c)), coalesce(r.lane, ($13::smallint[])[1]),
  r.labels::jsonb, r.trace::jsonb, (SELECT now FROM c) + r.life * interval '1 microsecond', r.retain::bigint[], r.parent, r.round, coalesce(r.depth, ($18::int[])[1])
FROM (
  SELECT "gendurable".gen_durable_draw('"gendurable".gen_durable_id_draw') AS id, t.*, ($20::bigint[])[coalesce(t.place, ($17::int[])[1])] AS parent, (SELECT rounds FROM p)[coalesce(t.place, ($17::int[])[1])] AS round
  FROM (SELECT unnest($1::uuid[]) AS uid, unnest($2::text[]) AS fsm, unnest($3::int[]) AS ver, unnest($4::text[]) AS step,
  unnest($5::text[]) AS queue, unnest($6::smallint[]) AS prio, unnest($7::text[]) AS state, unnest($8::text[]) AS part,
  unnest($9::text[]) AS key, unnest($10::smallint[]) AS scope, unnest($11::bigint[]) AS us, unnest($12::timestamptz[]) AS at,
  unnest($13::smallint[]) AS lane, unnest($14::text[]) AS labels, unnest($15::text[]) AS trace, unnest($16::bigint[]) AS life, unnest($21::text[]) AS retain, unnest($17::int[]) AS place, unnest($18::int[]) AS depth) t) r
WHERE r.round <> 0 ORDER BY r.key COLLATE "C" NULLS FIRST, r.id
ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
RETURNING id, uid
