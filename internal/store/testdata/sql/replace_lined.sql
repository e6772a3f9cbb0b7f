WITH c AS MATERIALIZED (SELECT clock_timestamp() AS now)
UPDATE "gendurable".gen_durable g SET fsm = coalesce(r.fsm, ($2::text[])[1]), fsm_version = coalesce(r.ver, ($3::int[])[1]), step = coalesce(r.step, ($4::text[])[1]),
  queue = coalesce(r.queue, ($5::text[])[1]), priority = coalesce(r.prio, ($6::smallint[])[1]), state = r.state::jsonb,
  partition_key = r.part, correlation_key = r.key, correlation_scope = CASE WHEN r.key IS NULL THEN '{}'::"gendurable".durable_status[] ELSE CASE coalesce(r.scope, ($10::smallint[])[1])
    WHEN 0 THEN '{runnable,executing,awaiting_signal,awaiting_children}'::"gendurable".durable_status[]
    WHEN 1 THEN '{runnable,executing,awaiting_signal,awaiting_children,done}'::"gendurable".durable_status[]
    WHEN 2 THEN '{runnable,executing,awaiting_signal,awaiting_children,failed}'::"gendurable".durable_status[]
    WHEN 3 THEN '{runnable,executing,awaiting_signal,awaiting_children,done,failed}'::"gendurable".durable_status[]
    ELSE '{}'::"gendurable".durable_status[] END END,
  eligible_at = CASE WHEN greatest(coalesce(r.at, (SELECT now FROM c) + r.us * interval '1 microsecond'), (SELECT now FROM c)) > (SELECT now FROM c) THEN least(greatest(coalesce(r.at, (SELECT now FROM c) + r.us * interval '1 microsecond'), (SELECT now FROM c)), r.latest)
    ELSE least(g.eligible_at, (SELECT now FROM c)) END,
  pick_lane = coalesce(r.lane, ($13::smallint[])[1]), gate = r.gate, place = NULL, seat = NULL,
  run_gate = NULL, run_place = NULL, aside_step = NULL,
  labels = r.labels::jsonb, trace = r.trace::jsonb, deadline = (SELECT now FROM c) + r.life * interval '1 microsecond',
  retain = r.retain::bigint[],
  attempt = 0, crashes = 0, last_error = NULL, errors = NULL, result = NULL, progress = NULL, commit_id = NULL,
  awaits = NULL, await_deadline = NULL, timed_out = false,
  updated_at = (SELECT now FROM c)
FROM (SELECT unnest($1::uuid[]) AS uid, unnest($2::text[]) AS fsm, unnest($3::int[]) AS ver, unnest($4::text[]) AS step,
  unnest($5::text[]) AS queue, unnest($6::smallint[]) AS prio, unnest($7::text[]) AS state, unnest($8::text[]) AS part,
  unnest($9::text[]) AS key, unnest($10::smallint[]) AS scope, unnest($11::bigint[]) AS us, unnest($12::timestamptz[]) AS at,
  unnest($13::smallint[]) AS lane, unnest($14::text[]) AS labels, unnest($15::text[]) AS trace, unnest($16::bigint[]) AS life, unnest($20::text[]) AS gate, unnest($17::bigint[]) AS target, unnest($18::timestamptz[]) AS latest,
  unnest($19::text[]) AS retain) r
WHERE g.id = r.target AND coalesce(g.status = 'runnable' AND g.claim_token = 0, false)
RETURNING g.id
