WITH RECURSIVE c AS MATERIALIZED (SELECT s.*, greatest(0, least($4::bigint, coalesce(cardinality(s.seats), $4::bigint)) - s.had) AS want
  FROM (SELECT clock_timestamp() AS now, nullif(current_setting('gendurable.seats'), '')::int[] AS seats,
    cardinality(current_setting('gendurable.claimed')::bigint[]) AS had) s),
o AS MATERIALIZED (SELECT count(*) = 1 AS alone, min(r.name) AS name, min(r.queue) AS queue, min(r.machine) AS machine, min(r.step) AS step,
    min(r.label) AS label, bool_or(r.run) AS run
  FROM "gendurable".gates r WHERE NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)),
other(queue) AS (
  SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) WHERE false
  UNION ALL SELECT (SELECT g.queue FROM "gendurable".gen_durable g WHERE g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.queue > o.queue ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) FROM other o WHERE o.queue IS NOT NULL),
rival AS MATERIALIZED (
  SELECT o.queue FROM other o WHERE o.queue <> $1 AND NOT EXISTS (SELECT FROM "gendurable".paused_queues p WHERE p.queue = o.queue) AND EXISTS (
    SELECT FROM "gendurable".workers w WHERE w.queues ? o.queue AND NOT w.draining AND w.expires_at > clock_timestamp()) ORDER BY random() LIMIT 16),
r AS MATERIALIZED (
  SELECT r.name, r.queue, r.label, r.run, coalesce(r.places, r.total) AS places, r.rate, r.rate_per, r.rate_burst, r.cost_label, r.total_rate, r.total_rate_per, r.total_rate_burst,
    r.name = ANY(current_setting('gendurable.gates')::text[]) AND (r.total_rate IS NULL OR b.at IS NOT NULL OR e.key IS NULL AND r.name <> ALL(current_setting('gendurable.unpaid')::text[])) AS mine,
    r.updated_at, coalesce(b.at > c.now, false) AS ahead, e.closed_until AS closed, e.weight, d.owes, y.shared, least(CASE WHEN r.total IS NULL THEN NULL
        WHEN r.run THEN r.total - (SELECT count(*) FROM "gendurable".gen_durable g
          WHERE g.run_place IS NOT NULL AND g.finished_at IS NULL AND split_part(g.run_gate, '/', 1) = r.name)
        ELSE r.total - (SELECT count(*) FROM "gendurable".gen_durable g WHERE g.place IS NOT NULL AND split_part(g.gate, '/', 1) = r.name) END,
      floor(r.total_rate_burst - d.owes))::bigint - y.shared::int AS total_free
  FROM c CROSS JOIN "gendurable".gates r LEFT JOIN "gendurable".gate_keys e ON e.key = r.name
  LEFT JOIN LATERAL (SELECT b.debt, b.at, b.pace FROM "gendurable".gate_keys b WHERE r.total_rate IS NOT NULL AND b.key = r.name
    FOR NO KEY UPDATE OF b SKIP LOCKED) b ON true
  LEFT JOIN LATERAL (SELECT CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.total_rate_burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.total_rate::float8 / r.total_rate_per * coalesce(b.pace, 1)) END AS owes OFFSET 0) d ON r.total_rate IS NOT NULL
  CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM rival q WHERE r.queue IS NULL AND num_nonnulls(r.total, r.total_rate) > 0 AND (
    SELECT g.id FROM "gendurable".gen_durable g WHERE g.queue = q.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ (r.name || '/') AND g.gate ~<~ (r.name || '0')
    ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) IS NOT NULL) AS shared OFFSET 0) y),
head(k) AS (
  SELECT (SELECT g.gate FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 ORDER BY g.queue, g.gate USING ~<~ LIMIT 1)
  UNION ALL SELECT (SELECT g.gate FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3
      AND g.gate ~>=~ CASE WHEN strpos(h.k, '/') > 0 THEN split_part(h.k, '/', 1) || '0' ELSE h.k || chr(1) END
    ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) FROM head h WHERE h.k IS NOT NULL),
party AS MATERIALIZED (
  SELECT q.*, least(c.want, greatest(least(4, ceil(256.0 / q.parties)), ceil(2.0 * c.want / q.parties)))::bigint AS most, greatest(10, ceil($5::numeric / q.parties))::int AS keys,
    CASE WHEN cardinality($20::text[]) = 0 THEN q.lo ELSE (
    SELECT CASE WHEN j.lo COLLATE "C" < j.hi THEN least(j.hi COLLATE "C", CASE WHEN j.fresh[j.i] = j.lo THEN j.lo ELSE j.fresh[j.i + 1] END) COLLATE "default" ELSE j.lo END
    FROM (SELECT x.lo, ($21::text[])[width_bucket(x.lo COLLATE "C", $20::text[])] AS hi, $22::text[] AS fresh,
      width_bucket(x.lo COLLATE "C", $22::text[]) AS i FROM (SELECT q.lo AS lo OFFSET 0) x OFFSET 0) j) END AS first
  FROM c CROSS JOIN (
    SELECT h.party, h.party AS lo, h.hi, t.after, CASE WHEN t.used > 0 THEN t.after ELSE coalesce(t.after || chr(1), h.party) END AS start,
      coalesce(t.used, 0) AS used, greatest(t.pass, $11::float8) AS pass, coalesce(r.weight, 1) AS weight, count(*) OVER () AS parties
    FROM (SELECT split_part(h.k, '/', 1) AS name, CASE WHEN strpos(h.k, '/') > 0 THEN split_part(h.k, '/', 1) || '/' ELSE h.k END AS party,
        CASE WHEN strpos(h.k, '/') > 0 THEN split_part(h.k, '/', 1) || '0' ELSE h.k || chr(1) END AS hi FROM head h WHERE h.k IS NOT NULL) h
    LEFT JOIN r ON r.name = h.name
    LEFT JOIN (SELECT t.party, nullif(t.after, '') AS after, t.used, t.pass
      FROM unnest($7::text[], $8::text[], $9::int[], $10::float8[]) t(party, after, used, pass)) t ON t.party = h.party) q),
walk AS (
  SELECT 0 AS n, q.party, q.start AS lo, false AS over, NULL::text AS k, false AS around, NULL::text AS name, false AS run, NULL::int AS places, NULL::int[] AS taken,
    NULL::int AS rate, NULL::bigint AS rate_per, NULL::int AS burst, NULL::text AS cost_label, NULL::bigint AS total_free, NULL::int AS total_rate,
    NULL::bigint AS total_per, NULL::int AS total_burst, NULL::float8 AS owes, 1 AS weight, 0 AS used, 0::bigint AS free, 0::bigint AS met,
    NULL::bigint AS wait, false AS crowded, NULL::timestamptz AS since, false AS ahead,
    false AS yielded, false AS rivals FROM party q
  UNION ALL
  SELECT v.n, v.party, v.lo, v.over, v.k, v.around, v.name, v.run, v.places, v.taken, v.rate, v.rate_per, v.burst, v.cost_label, v.total_free, v.total_rate,
    v.total_per, v.total_burst, v.owes, v.weight, v.used, v.free, v.met + least(v.free, v.weight - v.used), v.wait, v.crowded, v.since, v.ahead, v.yielded, v.rivals
  FROM (
    SELECT w.n + 1 AS n, w.party, x.k || chr(1) AS lo, coalesce(NOT r.mine OR r.closed > c.now OR r.places <= 0 OR r.total_free <= 0, false) AS over, x.k, x.around,
      r.name, coalesce(r.run, false) AS run, m.places, h.taken, r.rate, r.rate_per, r.rate_burst AS burst, r.cost_label, r.total_free, r.total_rate,
      r.total_rate_per AS total_per, r.total_rate_burst AS total_burst, r.owes, coalesce(b.weight, 1) AS weight,
      CASE WHEN w.n = 0 AND x.k = q.after THEN least(q.used, coalesce(b.weight, 1) - 1) ELSE 0 END AS used, w.met,
      CASE WHEN r.name IS NULL THEN c.want WHEN NOT r.mine OR r.closed > c.now OR b.closed_until > c.now THEN 0
        ELSE greatest(0, least(c.want, f.of_key - coalesce(y.behind, false)::int, r.total_free)) END::bigint AS free,
      CASE WHEN NOT r.mine THEN NULL
        WHEN r.closed > c.now OR b.closed_until > c.now THEN (date_part('epoch', greatest(r.closed, b.closed_until) - c.now) * 1000000)::bigint
        WHEN d.debt + 1 > r.rate_burst THEN least(1e15, ceil((d.debt + 1 - r.rate_burst) * r.rate_per / r.rate / coalesce(b.pace, 1)))::bigint
        WHEN r.owes + 1 > r.total_rate_burst THEN least(1e15, ceil((r.owes + 1 - r.total_rate_burst) * r.total_rate_per / r.total_rate / 1))::bigint END AS wait,
      coalesce(r.mine AND (cardinality(h.taken) >= m.places OR r.total_free <= 0), false) AS crowded,
      r.updated_at AS since, coalesce(b.at > c.now OR r.ahead, false) AS ahead,
      coalesce(r.mine AND (y.behind AND f.of_key > 0 OR r.shared AND r.total_free >= 0 AND r.total_free < c.want), false) AS yielded,
      coalesce(r.mine AND (f.of_key <= 0 AND y.some OR r.shared AND r.total_free <= 0), false) AS rivals
    FROM (SELECT * FROM walk) w JOIN party q ON q.party = w.party CROSS JOIN c
    CROSS JOIN LATERAL (
      SELECT coalesce(f.k, CASE WHEN NOT w.around THEN (
          SELECT g.gate FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ q.first AND g.gate ~<~ q.hi
          ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) END) AS k,
        w.around OR f.k IS NULL AS around
      FROM (SELECT (SELECT g.gate FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate ~>=~ j.lo AND g.gate ~<~ q.hi
        ORDER BY g.queue, g.gate USING ~<~ LIMIT 1) AS k FROM (SELECT CASE WHEN cardinality($20::text[]) = 0 THEN w.lo ELSE (
    SELECT CASE WHEN j.lo COLLATE "C" < j.hi THEN least(j.hi COLLATE "C", CASE WHEN j.fresh[j.i] = j.lo THEN j.lo ELSE j.fresh[j.i + 1] END) COLLATE "default" ELSE j.lo END
    FROM (SELECT x.lo, ($21::text[])[width_bucket(x.lo COLLATE "C", $20::text[])] AS hi, $22::text[] AS fresh,
      width_bucket(x.lo COLLATE "C", $22::text[]) AS i FROM (SELECT w.lo AS lo OFFSET 0) x OFFSET 0) j) END AS lo OFFSET 0) j OFFSET 0) f OFFSET 0) x
    LEFT JOIN r ON r.name = split_part(x.k, '/', 1)
    LEFT JOIN LATERAL (SELECT b.* FROM "gendurable".gate_keys b WHERE b.key = x.k OFFSET 0) b ON r.mine
    LEFT JOIN LATERAL (SELECT CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < r.updated_at THEN least(b.debt, r.rate_burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * r.rate::float8 / r.rate_per * coalesce(b.pace, 1)) END AS debt OFFSET 0) d ON r.rate IS NOT NULL
    CROSS JOIN LATERAL (SELECT CASE WHEN r.places = 0 THEN 0 ELSE coalesce(b.places, r.places) END AS places) m
    LEFT JOIN LATERAL (SELECT CASE WHEN r.run
      THEN ARRAY(SELECT g.run_place FROM "gendurable".gen_durable g WHERE g.run_gate = x.k AND g.run_place IS NOT NULL AND g.finished_at IS NULL)
      ELSE ARRAY(SELECT g.place FROM "gendurable".gen_durable g WHERE g.gate = x.k AND g.place IS NOT NULL) END AS taken OFFSET 0) h ON r.mine AND m.places IS NOT NULL
    CROSS JOIN LATERAL (SELECT least(m.places - cardinality(h.taken), floor(r.rate_burst - d.debt))::bigint AS of_key OFFSET 0) f
    LEFT JOIN LATERAL (SELECT count(*) > 0 AS some, bool_or((z.priority, z.eligible_at, z.id) < (a.priority, a.eligible_at, a.id)) AS behind
      FROM rival e CROSS JOIN LATERAL (SELECT g.priority, g.eligible_at, g.id FROM "gendurable".gen_durable g WHERE g.queue = e.queue AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate = x.k ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) z CROSS JOIN LATERAL (SELECT g.priority, g.eligible_at, g.id FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate = x.k ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT 1) a) y ON r.mine AND r.queue IS NULL AND f.of_key <= c.want
    WHERE w.met < q.most AND w.n < q.keys AND NOT w.over AND x.k IS NOT NULL AND NOT (x.around AND x.k ~>=~ q.start)) v),
met AS MATERIALIZED (
  SELECT w.party, max(w.met) AS met, max(w.n) AS n, greatest(1, ceil(max(q.most)::numeric / greatest(1, max(w.met))))::int AS turns, (array_agg(w.k ORDER BY w.n DESC))[1] AS last
  FROM walk w JOIN party q ON q.party = w.party GROUP BY w.party),
key AS MATERIALIZED (
  SELECT w.party, w.n, w.k, w.name, w.run, w.places IS NOT NULL AS placed, w.rate, w.rate_per, w.burst, w.cost_label, w.total_free, w.total_rate, w.total_per,
    w.total_burst, w.owes, w.weight, w.used, w.free, least(w.free, w.weight * m.turns - w.used) AS take, d.debt, b.pace_now AS pace,
    num_nonnulls(w.rate, w.total_free, w.total_rate) > 0 AS more,
    CASE WHEN cardinality(w.taken) > 0 THEN ARRAY(SELECT f.n FROM (
      SELECT generate_series(1, least(w.places, cardinality(w.taken) + least(w.free, w.weight * m.turns - w.used)))::int
      EXCEPT SELECT unnest(w.taken)) f(n) ORDER BY f.n) END AS numbers
  FROM walk w JOIN met m ON m.party = w.party CROSS JOIN c
  LEFT JOIN LATERAL (SELECT b.debt, b.at, b.pace, least(1, b.pace * power(2, least(60, greatest(0, date_part('epoch', c.now - b.at)) * 100000 / w.rate_per))) AS pace_now FROM "gendurable".gate_keys b
    WHERE w.rate IS NOT NULL AND b.key = w.k FOR NO KEY UPDATE OF b SKIP LOCKED) b ON true
  LEFT JOIN LATERAL (SELECT CASE WHEN b.at IS NULL THEN 0 ELSE greatest(0, CASE WHEN b.at < w.since THEN least(b.debt, w.burst) ELSE coalesce(b.debt, 0) END - greatest(0, date_part('epoch', c.now - b.at)) * 1000000 * w.rate::float8 / w.rate_per * coalesce(b.pace, 1)) END AS debt OFFSET 0) d ON w.rate IS NOT NULL
  WHERE w.free > 0 AND (w.rate IS NULL OR b.at IS NOT NULL OR NOT EXISTS (SELECT FROM "gendurable".gate_keys e WHERE e.key = w.k) AND w.k <> ALL(current_setting('gendurable.unpaid')::text[]))),
line AS MATERIALIZED (
  SELECT CASE WHEN x.gate IS DISTINCT FROM k.k THEN 6 WHEN NOT x.known THEN 2
      WHEN x.partition_key IS NOT NULL AND ((SELECT b.id FROM "gendurable".gen_durable b WHERE b.partition_key = x.partition_key AND b.status = 'executing' LIMIT 1) IS NOT NULL
        OR (SELECT h.id FROM (
    SELECT f.id, f.pick_lane FROM (
      SELECT g.id, g.pick_lane, g.eligible_at FROM "gendurable".gen_durable g
      WHERE g.partition_key = x.partition_key AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused
      ORDER BY g.priority, g.eligible_at, g.id LIMIT 1) f
    WHERE f.eligible_at <= c.now
    UNION ALL
    SELECT r.id, r.pick_lane FROM (
      WITH RECURSIVE level(p) AS (
        (SELECT g.priority FROM "gendurable".gen_durable g
         WHERE g.partition_key = x.partition_key AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused
         ORDER BY g.priority LIMIT 1)
        UNION ALL
        SELECT (SELECT g.priority FROM "gendurable".gen_durable g
          WHERE g.partition_key = x.partition_key AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.priority > level.p
          ORDER BY g.priority LIMIT 1)
        FROM level WHERE level.p IS NOT NULL)
      SELECT h.id, h.pick_lane FROM level CROSS JOIN LATERAL (
        SELECT g.id, g.pick_lane FROM "gendurable".gen_durable g
        WHERE g.partition_key = x.partition_key AND g.queue = $1 AND g.status = 'runnable' AND NOT g.paused
          AND g.priority = level.p AND g.eligible_at <= c.now
        ORDER BY g.eligible_at, g.id LIMIT 1) h
      WHERE level.p IS NOT NULL LIMIT 1) r
    LIMIT 1) h) IS DISTINCT FROM x.id) THEN 6
      WHEN x.then_gate IS NOT NULL THEN 7 ELSE 0 END AS act, k.more, x.i, k.take, k.free, k.n, k.used, k.weight, x.tid, x.partition_key, k.party, x.priority, x.eligible_at, k.k, k.run,
    CASE WHEN k.placed THEN coalesce(k.numbers[x.i], x.i) END::int AS number, x.then_gate, x.id,
    k.name, k.rate, k.rate_per, k.burst, k.total_free, k.total_rate, k.total_per, k.total_burst, k.owes, k.debt, k.pace, x.cost
  FROM key k CROSS JOIN c CROSS JOIN o CROSS JOIN LATERAL (SELECT z.*, row_number() OVER () AS i FROM (
    SELECT g.ctid AS tid, g.id, g.partition_key, g.priority, g.eligible_at, (g.fsm || '/' || g.fsm_version) = ANY($3::text[]) AS known,
      CASE WHEN o.alone THEN CASE WHEN (NOT o.run OR g.run_gate IS NULL) AND coalesce(o.queue = g.queue, true)
        AND coalesce(o.machine = g.fsm, true) AND coalesce(o.step = g.step, true) AND (o.label IS NULL OR g.labels ->> o.label IS NOT NULL)
      THEN o.name || CASE WHEN o.label IS NULL THEN '' ELSE '/' || left(g.labels ->> o.label, 256) END END ELSE (SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM "gendurable".gates r
      WHERE (r.run AND g.run_gate IS NULL OR NOT r.run AND NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)) AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1) END AS gate, CASE WHEN k.run THEN (SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM "gendurable".gates r
      WHERE NOT r.run AND NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run) AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1) END AS then_gate,
      CASE WHEN g.labels ->> k.cost_label ~ '^[0-9]{1,7}$' THEN least(1000000, greatest(1, (g.labels ->> k.cost_label)::int)) ELSE 1 END AS cost
    FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 3 AND g.gate = k.k AND g.id <> ALL($6::bigint[]) AND g.id = ANY($19::bigint[])
    ORDER BY g.queue, g.gate USING ~<~, g.priority, g.eligible_at, g.id LIMIT k.take FOR NO KEY UPDATE OF g SKIP LOCKED) z) x),
facts AS MATERIALIZED (SELECT EXISTS (SELECT FROM line a WHERE a.act IN (2, 6)) AS others, EXISTS (SELECT FROM key k WHERE k.more) AS more),
paid AS MATERIALIZED (
  SELECT a.*, row_number() OVER (PARTITION BY a.k ORDER BY a.i) AS j, sum(a.cost) OVER (PARTITION BY a.k ORDER BY a.i) AS spent
  FROM line a WHERE (SELECT f.more OR f.others FROM facts f) AND a.act IN (0, 7) AND (a.more OR (SELECT others FROM facts))),
sums AS MATERIALIZED (
  SELECT p.*, row_number() OVER (PARTITION BY p.name ORDER BY p.turn, p.n, p.k, p.j) AS of_gate, sum(p.cost) OVER (PARTITION BY p.name ORDER BY p.turn, p.n, p.k, p.j) AS gate_spent
  FROM (SELECT p.*, (p.j + p.used + p.weight - 1) / p.weight AS turn FROM paid p) p
  WHERE p.rate IS NULL OR p.debt + p.spent - p.cost + least(p.cost, p.burst) <= p.burst),
may AS MATERIALIZED (
  SELECT x.party, x.priority, x.eligible_at, x.partition_key, x.act, x.tid, x.number, x.k, x.run, x.then_gate, x.n, x.i AS j, (x.i + x.used + x.weight - 1) / x.weight AS turn, x.used, x.weight,
    NULL::text AS name, NULL::int AS rate, NULL::int AS total_rate, NULL::int AS cost, NULL::float8 AS debt, NULL::float8 AS owes, NULL::float8 AS pace
  FROM line x WHERE x.act IN (0, 7) AND NOT x.more AND NOT (SELECT others FROM facts)
  UNION ALL
  SELECT s.party, s.priority, s.eligible_at, s.partition_key, s.act, s.tid, s.number, s.k, s.run, s.then_gate, s.n, s.j, s.turn, s.used, s.weight,
    s.name, s.rate, s.total_rate, s.cost, s.debt, s.owes, s.pace
  FROM sums s WHERE (s.total_free IS NULL OR s.of_gate <= s.total_free)
    AND (s.total_rate IS NULL OR s.owes + s.gate_spent - s.cost + least(s.cost, s.total_burst) <= s.total_burst)),
rest AS MATERIALIZED (SELECT coalesce(sum(q.weight), 0)::int AS weight FROM party q WHERE q.party IN (SELECT m.party FROM may m)),
level(p, at, id) AS (
  SELECT -32769, '-infinity'::timestamptz, 0::bigint
  UNION ALL
  SELECT n.* FROM level CROSS JOIN LATERAL (
    SELECT * FROM (
      (SELECT g.priority::int AS p, g.eligible_at, g.id FROM "gendurable".gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND g.priority > level.p AND g.priority < $13::int
       ORDER BY g.priority, g.eligible_at, g.id LIMIT 1)
      UNION ALL
      (SELECT g.priority::int, g.eligible_at, g.id FROM "gendurable".gen_durable g
       WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0 AND (g.priority, g.eligible_at, g.id) >
         (greatest(level.p, $13::int), CASE WHEN level.p < $13::int THEN $14::timestamptz ELSE 'infinity' END, $15::bigint)
       ORDER BY g.priority, g.eligible_at, g.id LIMIT 1)) c
    ORDER BY 1, 2, 3 LIMIT 1) n),
front AS MATERIALIZED (
  SELECT f.priority, f.eligible_at, f.id FROM (
    SELECT r.* FROM (SELECT * FROM level WHERE level.id > 0) level CROSS JOIN o CROSS JOIN LATERAL (
      SELECT g.priority, g.eligible_at, g.id, (g.fsm || '/' || g.fsm_version) = ANY($3::text[]) AS known, CASE WHEN o.alone THEN CASE WHEN (NOT o.run OR g.run_gate IS NULL) AND coalesce(o.queue = g.queue, true)
        AND coalesce(o.machine = g.fsm, true) AND coalesce(o.step = g.step, true) AND (o.label IS NULL OR g.labels ->> o.label IS NOT NULL)
      THEN o.name || CASE WHEN o.label IS NULL THEN '' ELSE '/' || left(g.labels ->> o.label, 256) END END ELSE (SELECT r.name || CASE WHEN r.label IS NULL THEN '' ELSE '/' || left(g.labels ->> r.label, 256) END
      FROM "gendurable".gates r
      WHERE (r.run AND g.run_gate IS NULL OR NOT r.run AND NOT (r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL AND r.cost_label IS NULL AND NOT r.run)) AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
        AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
      ORDER BY NOT r.run, r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name COLLATE "C" LIMIT 1) END AS gate
      FROM "gendurable".gen_durable g WHERE g.queue = $1 AND g.status = 'runnable' AND NOT g.paused AND g.pick_lane = 0
        AND g.priority = level.p AND (g.eligible_at, g.id) >= (level.at, level.id) AND g.eligible_at <= statement_timestamp()
      ORDER BY g.eligible_at, g.id LIMIT (SELECT want FROM c)) r LIMIT (SELECT want FROM c)) f
  WHERE f.known AND f.gate IS NULL AND $16::bool AND (SELECT weight FROM rest) > 0),
merged AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY NOT (m.rank <= $18::int AND m.since = m.oldest), m.urgency, m.tag, m.party) AS nth, m.* FROM (
    SELECT m.*, min(m.since) OVER () AS oldest FROM (
      SELECT m.party, m.partition_key, m.act, m.tid, m.number, m.k, m.run, m.then_gate, m.j, m.used, m.weight, m.name, m.rate, m.total_rate, m.cost, m.debt, m.owes, m.pace,
        row_number() OVER w AS rank, first_value(m.eligible_at) OVER w AS since,
        min(m.priority) OVER (PARTITION BY m.party ORDER BY m.turn, m.n, m.j ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS urgency,
        q.pass + (row_number() OVER w - 1)::float8 / q.weight AS tag
      FROM may m JOIN party q ON q.party = m.party WINDOW w AS (PARTITION BY m.party ORDER BY m.turn, m.n, m.j)
      UNION ALL
      SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        row_number() OVER w, first_value(f.eligible_at) OVER w, f.priority, $17::float8 + (row_number() OVER w - 1)::float8 / (SELECT weight FROM rest)
      FROM front f WINDOW w AS (ORDER BY f.priority, f.eligible_at, f.id)) m) m),
picked AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY m.nth) AS seat, m.* FROM merged m WHERE m.nth <= (SELECT want FROM c) AND m.tid IS NOT NULL),
moved AS (
  UPDATE "gendurable".gen_durable g SET
    status = CASE WHEN t.act = 0 THEN 'executing' ELSE g.status END,
    pick_lane = CASE t.act WHEN 2 THEN 2 WHEN 7 THEN 3 ELSE 0 END,
    gate = CASE WHEN t.act = 0 AND NOT t.run THEN g.gate WHEN t.act = 7 THEN t.then_gate END,
    place = CASE WHEN t.act = 0 AND NOT t.run THEN t.number END,
    run_gate = CASE WHEN t.run THEN t.k ELSE g.run_gate END, run_place = CASE WHEN t.run THEN t.number ELSE g.run_place END,
    seat = CASE WHEN t.act = 0 THEN (SELECT seats FROM c)[(SELECT had FROM c) + t.seat] END,
    locked_by = CASE WHEN t.act = 0 THEN $2::text END,
    lease_expires_at = CASE WHEN t.act = 0 THEN (SELECT clock_timestamp()) + $12::bigint * interval '1 microsecond' END,
    claim_token = CASE WHEN t.act = 0 THEN "gendurable".gen_durable_draw('"gendurable".gen_durable_token') ELSE g.claim_token END,
    updated_at = CASE WHEN t.act = 0 THEN statement_timestamp() ELSE g.updated_at END
  FROM (SELECT p.tid, p.act, p.k, p.run, p.then_gate, p.number, p.seat FROM picked p WHERE p.partition_key IS NULL
    UNION ALL
    SELECT a.tid, a.act, NULL, false, NULL, NULL, NULL FROM line a WHERE a.act IN (2, 6) AND (SELECT others FROM facts)
    UNION ALL
    (SELECT p.tid, p.act, p.k, p.run, p.then_gate, p.number, p.seat FROM picked p WHERE p.partition_key IS NOT NULL ORDER BY p.partition_key)) t
  WHERE g.ctid = t.tid
  RETURNING t.act, g.id, g.awaits IS NOT NULL AS awaits,
    CASE WHEN t.act = 0 AND g.partition_key IS NOT NULL THEN "gendurable".gen_durable_draw('"gendurable".gen_durable_token') END AS fencing_token),
pay AS (
  INSERT INTO "gendurable".gate_keys AS b (key, debt, at, pace)
  SELECT p.k, least(1e12, max(p.debt) + sum(p.cost)), (SELECT now FROM c), coalesce(max(p.pace), 1) FROM picked p WHERE (SELECT more FROM facts) AND p.rate IS NOT NULL GROUP BY p.k
  UNION ALL
  SELECT p.name, least(1e12, max(p.owes) + sum(p.cost)), (SELECT now FROM c), 1 FROM picked p WHERE (SELECT more FROM facts) AND p.total_rate IS NOT NULL AND p.k <> p.name GROUP BY p.name
  ORDER BY 1
  ON CONFLICT (key) DO UPDATE SET debt = excluded.debt, at = excluded.at, pace = CASE WHEN b.debt = 0 THEN b.pace ELSE excluded.pace END),
sum AS MATERIALIZED (
  SELECT count(*) FILTER (WHERE act > 0) AS moved, count(*) FILTER (WHERE act IN (2, 6)) AS left,
    array_agg(id) FILTER (WHERE act = 0) AS ids, array_agg(id) FILTER (WHERE act = 0 AND awaits) AS awaiting,
    array_agg(ARRAY[id, fencing_token]) FILTER (WHERE fencing_token IS NOT NULL) AS fencing FROM moved),
turn AS (
  SELECT array_agg(t.party) AS parties, array_agg(CASE WHEN t.goes THEN t.last ELSE coalesce(t.k, t.after) END) AS afters,
    array_agg(CASE WHEN t.goes THEN 0 WHEN t.k IS NULL THEN t.used ELSE (t.j + t.had) % t.weight END) AS used,
    array_agg(t.took) AS took, array_agg(t.share) AS shares, (SELECT weight FROM rest) AS may
  FROM (
    SELECT q.party, q.after, q.used, q.weight AS share, coalesce(n.took, 0)::int AS took, l.k, l.j, l.used AS had, l.weight, m.last,
      m.met < q.most AND m.n >= q.keys AND CASE WHEN l.k IS NULL THEN a.party IS NULL ELSE n.took = a.rows END AS goes
    FROM party q JOIN met m ON m.party = q.party
    LEFT JOIN (SELECT x.party, count(*) AS rows FROM (SELECT x.party FROM line x WHERE x.act IN (0, 7) AND NOT x.more AND NOT (SELECT others FROM facts)
      UNION ALL SELECT s.party FROM sums s) x GROUP BY x.party) a ON a.party = q.party
    LEFT JOIN (SELECT p.party, count(*) AS took FROM picked p GROUP BY p.party) n ON n.party = q.party
    LEFT JOIN (SELECT DISTINCT ON (p.party) p.party, p.k, p.j, p.used, p.weight FROM picked p ORDER BY p.party, p.nth DESC) l ON l.party = q.party) t)
SELECT length(set_config('gendurable.claimed', (current_setting('gendurable.claimed')::bigint[] || coalesce(sum.ids, '{}'))::text, false) ||
    set_config('gendurable.awaiting', (current_setting('gendurable.awaiting')::bigint[] || coalesce(sum.awaiting, '{}'))::text, false) ||
    set_config('gendurable.fencing', (current_setting('gendurable.fencing')::bigint[] || coalesce(sum.fencing, '{}'))::text, false) ||
    set_config('gendurable.lined', coalesce(sum.ids, '{}')::text, false)),
  sum.moved, sum.left,
  EXISTS (SELECT FROM line x WHERE x.i = x.take AND x.take < x.free) OR EXISTS (SELECT FROM met m JOIN party q ON q.party = m.party WHERE m.met > 0 AND (m.met >= q.most AND q.most < (SELECT want FROM c) OR m.n >= q.keys)),
  EXISTS (SELECT FROM met m JOIN party q ON q.party = m.party WHERE m.met < q.most AND m.n >= q.keys),
  least((SELECT min(w.wait) FROM walk w), (SELECT min(least(1e15, ceil((u.tokens) * u.rate_per / u.rate / coalesce(u.pace, 1)))::bigint) FROM (
      SELECT p.rate, p.rate_per, p.pace, p.debt + p.spent - p.burst + CASE WHEN p.debt + p.spent - p.cost + least(p.cost, p.burst) > p.burst
        THEN least(p.cost, p.burst) - p.cost ELSE 1 END AS tokens FROM paid p WHERE p.rate IS NOT NULL) u WHERE u.tokens > 0),
    (SELECT min(least(1e15, ceil((u.owes + u.gate_spent - u.cost + least(u.cost, u.total_burst) - u.total_burst) * u.total_per / u.total_rate / 1))::bigint)
      FROM sums u WHERE u.owes + u.gate_spent - u.cost + least(u.cost, u.total_burst) > u.total_burst)),
  EXISTS (SELECT FROM walk w WHERE w.crowded), EXISTS (SELECT FROM walk w WHERE w.ahead),
  EXISTS (SELECT FROM walk w WHERE w.yielded), EXISTS (SELECT FROM walk w WHERE w.rivals),
  t.parties, t.afters, t.used, t.took, t.shares, t.may, (SELECT count(*) FROM merged m WHERE m.nth <= (SELECT want FROM c) AND m.tid IS NULL)::int,
  (date_part('epoch', clock_timestamp() - statement_timestamp()) * 1000000)::bigint,
  (SELECT array_agg(p.then_gate) FROM picked p WHERE p.act = 7), v.keys, v.waits
FROM sum CROSS JOIN turn t CROSS JOIN (SELECT array_agg(w.k ORDER BY w.n) AS keys, array_agg(w.wait ORDER BY w.n) AS waits FROM walk w
  WHERE cardinality($20::text[]) > 0 AND w.free = 0 AND NOT w.over AND NOT w.rivals AND NOT w.yielded AND (w.crowded OR w.wait IS NOT NULL)) v
