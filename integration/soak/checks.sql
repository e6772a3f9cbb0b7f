-- What must not be. Each view soak.check_… returns a line per violation. The four materialized ones in front are what they go by.

CREATE INDEX ON soak.event (kind, id, token, visit);
CREATE INDEX ON soak.event (kind, process);
CREATE INDEX ON soak.change (id, seq);
CREATE INDEX ON soak.change (xid, id);
CREATE INDEX ON soak.change (parent, parent_round);
CREATE INDEX ON soak.signal (target, dedup);
CREATE INDEX ON soak.signal (tag);
ANALYZE soak.event, soak.change, soak.signal, gendurable.gen_durable, gendurable.signals;

-- A step's execution by a process: up to its return, or to the end of the process.
CREATE MATERIALIZED VIEW soak.run AS
SELECT s.seq AS began, s.at AS began_at, coalesce(e.seq, d.seq, 9223372036854775807) AS ended, e.seq IS NULL AS interrupted, d.at AS died_at,
  s.process, s.id, s.visit, s.token, s.machine, s.step, s.n, s.label, s.key, s.attempt, s.signals, s.idempotency, e.outcome, e.to_step, e.to_n,
  e.detail
FROM soak.event s
LEFT JOIN soak.event e ON e.kind = 'ended' AND e.process = s.process AND e.id = s.id AND e.token = s.token AND e.visit = s.visit
LEFT JOIN soak.event d ON d.kind = 'died' AND d.label = s.process
WHERE s.kind = 'started';
CREATE INDEX ON soak.run (id, token, visit);
CREATE INDEX ON soak.run (key, began);

-- What ended a claim, or a visit of a kept one: old_token and old_visit say which.
CREATE MATERIALIZED VIEW soak.outcome AS
SELECT * FROM (
  SELECT c.*, CASE
    WHEN status = 'executing' AND visit = old_visit THEN NULL -- a heartbeat
    WHEN status = 'done' THEN 'done'
    WHEN crashes > old_crashes THEN 'reap'
    WHEN status = 'failed' THEN 'stop'
    WHEN status = 'awaiting_signal' THEN 'await'
    WHEN status = 'awaiting_children' OR round <> old_round THEN 'children'
    WHEN visit > old_visit THEN 'next'
    WHEN attempt > old_attempt THEN 'retry'
    ELSE 'release' END AS kind
  FROM soak.change c WHERE op = 'U' AND old_status = 'executing') o
WHERE kind IS NOT NULL;
CREATE INDEX ON soak.outcome (id, old_token, old_visit);
CREATE INDEX ON soak.outcome (xid, id);
ANALYZE soak.run, soak.outcome;

-- Signals that a committed outcome consumed, as its step saw them.
CREATE MATERIALIZED VIEW soak.consumption AS
SELECT o.xid, o.seq, r.id AS target, r.visit, s.id AS signal
FROM soak.run r CROSS JOIN LATERAL unnest(r.signals) AS s(id)
JOIN soak.outcome o ON o.id = r.id AND o.old_token = r.token AND o.old_visit = r.visit AND o.kind IN ('next', 'children', 'done');
CREATE INDEX ON soak.consumption (signal);

-- Which process is which worker.
CREATE MATERIALIZED VIEW soak.identity AS
SELECT DISTINCT r.process, c.worker FROM soak.run r
JOIN soak.change c ON c.id = r.id AND c.token = r.token AND c.visit = r.visit AND c.status = 'executing';
ANALYZE soak.consumption, soak.identity;

-- Accepted ⇒ terminal, and as it was meant to end.

CREATE VIEW soak.check_accepted_ended AS
SELECT format('%s accepted as %s is %s', e.label, e.id, coalesce(g.status::text, 'gone')) AS violation
FROM soak.event e LEFT JOIN gendurable.gen_durable g ON g.id = e.id
WHERE e.kind = 'accepted' AND (g.id IS NULL OR g.status NOT IN ('done', 'failed') OR g.state->>'Label' <> e.label);

CREATE VIEW soak.check_stuck AS
SELECT format('%s %s is %s at %s, lane %s, since %s', fsm, id, status, step, pick_lane, updated_at) AS violation
FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed');

CREATE VIEW soak.check_fate AS
SELECT format('%s %s: %s, should be %s (%s)', fsm, id, coalesce(failure, 'done'), state->>'Fate', last_error) AS violation
FROM gendurable.gen_durable WHERE status IN ('done', 'failed') AND coalesce(failure, 'done') <> state->>'Fate';

CREATE VIEW soak.check_result AS
SELECT format('Wait said %s %s of %s, which is %s', e.outcome, e.detail, e.id, g.status) AS violation
FROM soak.event e LEFT JOIN gendurable.gen_durable g ON g.id = e.id
WHERE e.kind = 'result' AND (e.outcome, coalesce(e.detail, '')) IS DISTINCT FROM (g.status::text, coalesce(g.failure, ''));

CREATE VIEW soak.check_wrong AS
SELECT format('%s %s at %s: %s', machine, coalesce(id::text, label), step, detail) AS violation FROM soak.event WHERE kind = 'wrong';

-- One outcome per claim; what is visible is what the claim's holder decided; what is acknowledged is there.

CREATE VIEW soak.check_one_outcome AS
SELECT format('instance %s, token %s, visit %s: %s', id, old_token, old_visit, string_agg(kind, ', ' ORDER BY seq)) AS violation
FROM soak.outcome GROUP BY id, old_token, old_visit HAVING count(*) > 1
UNION ALL
SELECT format('claim %s of instance %s ended %s times', old_token, id, count(*))
FROM soak.outcome WHERE status <> 'executing' GROUP BY id, old_token HAVING count(*) > 1;

-- The two that nobody decides: job machines' errors go to the retry policy, and who is out of attempts by crashes alone fails unheard.
CREATE VIEW soak.check_decided AS
SELECT format('%s %s, token %s, visit %s: %s to %s (%s) was decided by nobody', o.fsm, o.id, o.old_token, o.old_visit, o.kind, o.step, o.n) AS violation
FROM soak.outcome o
WHERE o.kind NOT IN ('reap', 'release')
  AND NOT EXISTS (SELECT FROM soak.event e WHERE e.kind IN ('ended', 'handled') AND e.id = o.id AND e.token = o.old_token AND e.visit = o.old_visit
    AND (e.outcome = o.kind AND (o.kind = 'stop' OR (e.to_step, e.to_n) = (o.step, o.n))
      OR e.outcome = 'error' AND o.fsm IN ('job', 'doomed') AND o.kind IN ('retry', 'stop')))
  AND NOT (o.fsm = 'doomed' AND o.failure = 'exhausted' AND o.attempt >= 3);

CREATE VIEW soak.check_acknowledged AS
SELECT format('instance %s, token %s, visit %s: %s was said to be durable', e.id, e.token, e.visit, e.outcome) AS violation
FROM soak.event e
WHERE e.kind = 'committed' AND NOT EXISTS (SELECT FROM soak.outcome o
  WHERE o.id = e.id AND o.old_token = e.token AND o.old_visit = e.visit AND o.kind = e.outcome);

-- The chain of an instance: each change begins where the one before it ended, tokens grow and change with claims only, visits grow by one.
CREATE VIEW soak.check_chain AS
SELECT format('instance %s at %s: %s', id, seq, what) AS violation
FROM (SELECT c.*, lag(seq) OVER w AS before, lag(status) OVER w AS was_status, lag(step) OVER w AS was_step, lag(visit) OVER w AS was_visit,
    lag(token) OVER w AS was_token, lag(n) OVER w AS was_n, lag(worker) OVER w AS was_worker
  FROM soak.change c WINDOW w AS (PARTITION BY id ORDER BY seq)) c
CROSS JOIN LATERAL (VALUES
  (op = 'I' AND before IS NOT NULL OR op <> 'I' AND before IS NULL, 'its history does not begin with its insertion'),
  (op = 'U' AND (old_status, old_step, old_visit, old_token, coalesce(old_worker, ''), old_n)
    IS DISTINCT FROM (was_status, was_step, was_visit, was_token, coalesce(was_worker, ''), was_n), 'it does not begin where the last one ended'),
  (op = 'U' AND token <> old_token AND NOT (token > old_token AND old_status = 'runnable' AND status = 'executing'), 'a new token without a claim'),
  (op = 'U' AND status = 'executing' AND old_status <> 'executing' AND token = old_token, 'a claim without a new token'),
  (op = 'U' AND worker IS DISTINCT FROM old_worker AND worker IS NOT NULL AND old_worker IS NOT NULL, 'it changed hands without a release'),
  (op = 'U' AND visit NOT IN (old_visit, old_visit + 1), 'the visit jumps'),
  (op = 'U' AND (step, n) IS DISTINCT FROM (old_step, old_n) AND old_status <> 'executing', 'step or state moved without a claim'),
  (op = 'U' AND visit > old_visit AND old_status <> 'executing', 'the visit moved without a claim'),
  (op = 'U' AND old_status IN ('done', 'failed'), 'it changed after its end'),
  (op = 'U' AND n NOT IN (old_n, old_n + 1), 'the state jumps'),
  (op = 'D', 'it was deleted')) AS t(broken, what)
WHERE broken;

-- A step sees what was committed before it.
CREATE VIEW soak.check_read_back AS
SELECT format('%s %s ran %s (%s) by token %s at visit %s, which no claim had', r.machine, r.id, r.step, r.n, r.token, r.visit) AS violation
FROM soak.run r
WHERE NOT EXISTS (SELECT FROM soak.change c WHERE c.id = r.id AND c.status = 'executing' AND c.token = r.token AND c.visit = r.visit
  AND c.step = r.step AND c.n = r.n AND c.attempt = r.attempt);

CREATE VIEW soak.check_idempotency AS
SELECT format('instance %s, visit %s: %s idempotency keys', id, visit, count(DISTINCT idempotency)) AS violation
FROM soak.run GROUP BY id, visit HAVING count(DISTINCT idempotency) > 1
UNION ALL
SELECT format('idempotency key %s of %s visits', idempotency, count(DISTINCT (id, visit)))
FROM soak.run GROUP BY idempotency HAVING count(DISTINCT (id, visit)) > 1;

-- A claim ends against its holder's will only when its lease is over, and nobody else runs before.

CREATE VIEW soak.check_reaped_early AS
SELECT format('instance %s, token %s: reaped at %s, its lease ran until %s', id, old_token, at, old_lease) AS violation
FROM soak.outcome WHERE kind = 'reap' AND at < old_lease;

CREATE VIEW soak.check_instance_overlap AS
SELECT format('instance %s ran by token %s in %s and, beside it, by %s in %s', a.id, a.token, a.process, b.token, b.process) AS violation
FROM soak.run a JOIN soak.run b ON b.id = a.id AND b.token <> a.token AND b.began > a.began AND b.began < a.ended
WHERE NOT EXISTS (SELECT FROM soak.outcome o WHERE o.id = a.id AND o.old_token = a.token AND o.kind = 'reap');

CREATE VIEW soak.check_key_overlap AS
SELECT format('key %s: %s ran by token %s in %s and, beside it, %s by %s in %s', a.key, a.id, a.token, a.process, b.id, b.token, b.process) AS violation
FROM soak.run a JOIN soak.run b ON b.key = a.key AND b.token <> a.token AND b.began > a.began AND b.began < a.ended
WHERE NOT EXISTS (SELECT FROM soak.outcome o WHERE o.id = a.id AND o.old_token = a.token AND o.kind = 'reap');

CREATE VIEW soak.check_key_executing AS
SELECT format('key %s: %s rows execute at %s', key, held, seq) AS violation
FROM (SELECT key, seq, sum(d) OVER (PARTITION BY key ORDER BY seq) AS held
  FROM (SELECT key, seq, (status = 'executing')::int - (old_status = 'executing')::int AS d FROM soak.change WHERE op = 'U' AND key IS NOT NULL) c
  WHERE d <> 0) k
WHERE held > 1;

-- Rows that were inserted one after the other, for one key, queue and priority, are claimed first in this order.
CREATE VIEW soak.check_key_order AS
SELECT format('key %s: place %s (%s) was claimed before place %s (%s)', key, place, id, was, was_id) AS violation
FROM (SELECT *, lag(place) OVER w AS was, lag(id) OVER w AS was_id, lag(first) OVER w AS was_first
  FROM (SELECT id, key, queue, priority, place, min(seq) FILTER (WHERE status = 'executing') AS first
    FROM soak.change WHERE key IS NOT NULL AND place > 0 GROUP BY 1, 2, 3, 4, 5) c
  WINDOW w AS (PARTITION BY key, queue, priority ORDER BY place)) o
WHERE first < was_first OR first IS NOT NULL AND was IS NOT NULL AND was_first IS NULL;

-- Signals: none that was acknowledged is lost, none is consumed twice, unseen, or delivered to the dead.

CREATE VIEW soak.check_signal_lost AS
SELECT format('signal %s to %s was acknowledged and never came', e.tag, e.target) AS violation
FROM soak.event e
WHERE e.kind = 'acked' AND NOT EXISTS (SELECT FROM soak.signal s
  WHERE s.op = 'I' AND s.target = e.target AND (s.tag = e.tag OR e.duplicate AND s.dedup = e.dedup))
UNION ALL
SELECT format('signal %s to %s was acknowledged and never consumed', e.tag, e.target)
FROM soak.event e
WHERE e.kind = 'acked' AND e.tag NOT LIKE 'stray:%'
  AND NOT EXISTS (SELECT FROM (SELECT split_part(s.tag, '#', 1) AS wanted FROM soak.consumption c JOIN soak.signal s ON s.op = 'I' AND s.id = c.signal) s
    WHERE s.wanted = split_part(e.tag, '#', 1));

CREATE VIEW soak.check_signal_twice AS
SELECT format('signal %s was consumed %s times', signal, count(*)) AS violation FROM soak.consumption GROUP BY signal HAVING count(*) > 1
UNION ALL
SELECT format('signal %s left the inbox %s times', id, count(*)) FROM soak.signal WHERE op = 'C' GROUP BY id HAVING count(*) > 1;

CREATE VIEW soak.check_dedup_twice AS
SELECT format('dedup key %s was delivered to %s %s times', dedup, target, count(*)) AS violation
FROM soak.signal WHERE op = 'I' AND dedup IS NOT NULL GROUP BY target, dedup HAVING count(*) > 1;

CREATE VIEW soak.check_consumed_unseen AS
SELECT format('signal %s (%s) of %s was consumed by an outcome that had not seen it', s.id, s.tag, s.target) AS violation
FROM soak.signal s
WHERE s.op = 'C' AND NOT EXISTS (SELECT FROM soak.consumption c WHERE c.signal = s.id AND c.xid = s.xid)
  AND NOT EXISTS (SELECT FROM soak.change c WHERE c.xid = s.xid AND c.id = s.target AND c.status = 'done');

CREATE VIEW soak.check_signal_to_dead AS
SELECT format('signal %s came to %s, which was %s', s.tag, s.target, t.status) AS violation
FROM soak.signal s CROSS JOIN LATERAL (
  SELECT c.status FROM soak.change c WHERE c.id = s.target AND c.seq < s.seq ORDER BY c.seq DESC LIMIT 1) t
WHERE s.op = 'I' AND t.status IN ('done', 'failed')
UNION ALL
SELECT format('signal %s was refused and came nevertheless', e.tag) FROM soak.event e JOIN soak.signal s ON s.op = 'I' AND s.tag = e.tag
WHERE e.kind = 'refused' AND e.dedup IS NULL; -- with a dedup key the engine repeats what got no answer, and may come when the target has ended

CREATE VIEW soak.check_inbox_left AS
SELECT format('signal %s is left in the inbox of %s, which is done', s.id, s.target_id) AS violation
FROM gendurable.signals s JOIN gendurable.gen_durable g ON g.id = s.target_id WHERE g.status = 'done';

-- Awaits: a set is woken no more often than something new comes, a timeout not before its time.

CREATE VIEW soak.check_spin AS
SELECT format('collector %s took %s visits for %s signals', g.id, g.visit, count(s.id)) AS violation
FROM gendurable.gen_durable g LEFT JOIN soak.signal s ON s.op = 'I' AND s.target = g.id
WHERE g.fsm = 'collector' GROUP BY g.id, g.visit HAVING g.visit > count(s.id) + 3;

CREATE VIEW soak.check_timeout_early AS
SELECT format('instance %s timed out at %s, its time was %s', id, at, old_deadline) AS violation
FROM soak.change WHERE op = 'U' AND old_status = 'awaiting_signal' AND timed_out AND NOT old_timed_out
  AND (old_deadline IS NULL OR at < old_deadline);

-- Parents wake once a round, after all of its children, and see these; no child is an orphan.

CREATE VIEW soak.check_parent_wakes AS
SELECT format('parent %s woke %s times in round %s', id, count(*), round) AS violation
FROM soak.change WHERE op = 'U' AND old_status = 'awaiting_children' AND status <> 'awaiting_children' GROUP BY id, round HAVING count(*) > 1
UNION ALL
SELECT format('parent %s woke in round %s before its child %s had ended', w.id, w.round, k.id)
FROM soak.change w JOIN soak.change k ON k.op = 'I' AND k.parent = w.id AND k.parent_round = w.round
WHERE w.op = 'U' AND w.old_status = 'awaiting_children' AND w.status <> 'awaiting_children'
  AND NOT EXISTS (SELECT FROM soak.change e WHERE e.id = k.id AND e.status IN ('done', 'failed') AND e.seq < w.seq);

CREATE VIEW soak.check_join AS
SELECT format('parent %s, visit %s saw children %s, had %s', e.id, e.visit, e.children, k.ids) AS violation
FROM soak.event e CROSS JOIN LATERAL (
  SELECT array_agg(c.id ORDER BY c.id) AS ids FROM soak.change c WHERE c.op = 'I' AND c.parent = e.id AND c.parent_round = e.visit) k
WHERE e.kind = 'joined' AND coalesce(e.children, '{}') IS DISTINCT FROM coalesce(k.ids, '{}');

CREATE VIEW soak.check_orphan AS
SELECT format('child %s of %s was not inserted by the outcome of its parent''s round %s', k.id, k.parent, k.parent_round) AS violation
FROM soak.change k
WHERE k.op = 'I' AND k.parent IS NOT NULL AND NOT EXISTS (SELECT FROM soak.outcome o
  WHERE o.id = k.parent AND o.xid = k.xid AND o.kind = 'children' AND o.round = k.parent_round)
UNION ALL
SELECT format('child %s is %s and has not joined', id, status) FROM gendurable.gen_durable
WHERE parent_id IS NOT NULL AND status IN ('done', 'failed') AND joined IS NULL
UNION ALL
SELECT format('parent %s is %s and counts %s children', id, status, children_pending) FROM gendurable.gen_durable
WHERE children_pending <> 0 AND status <> 'awaiting_children';

-- Correlation keys: one owner at a time, and one at all where the scope is the whole life.

CREATE VIEW soak.check_guard AS
SELECT format('guard %s: %s owners at %s', guard, held, seq) AS violation
FROM (SELECT guard, seq, sum(d) OVER (PARTITION BY guard ORDER BY seq) AS held
  FROM (SELECT guard, seq, 1 AS d FROM soak.change WHERE guard IS NOT NULL AND guard IS DISTINCT FROM old_guard
    UNION ALL SELECT old_guard, seq, -1 FROM soak.change WHERE op = 'U' AND old_guard IS NOT NULL AND old_guard IS DISTINCT FROM guard) c) g
WHERE held > 1
UNION ALL
SELECT format('key %s, good for one instance, had %s', correlation_key, count(*)) FROM gendurable.gen_durable
WHERE correlation_key LIKE 'once:%' GROUP BY correlation_key HAVING count(*) > 1
UNION ALL
SELECT format('key %s was said to be occupied by %s, whose key is %s', e.key, e.target, g.correlation_key)
FROM soak.event e LEFT JOIN gendurable.gen_durable g ON g.id = e.target
WHERE e.kind = 'duplicate' AND g.correlation_key IS DISTINCT FROM e.key;

-- A deploy burns nothing: what a worker claimed while all were restarted in order, and no other fault was about, nobody had to reap.
-- What the engine itself cancelled is never taken for an error.

CREATE VIEW soak.check_rolling AS
SELECT format('%s ended: %s', e.label, e.detail) AS violation FROM soak.event e WHERE e.kind = 'rolled' AND e.detail <> ''
UNION ALL
SELECT format('instance %s, token %s of %s, which ended in order, was reaped', o.id, o.old_token, e.label)
FROM soak.event b
JOIN soak.event h ON h.kind = 'healed' AND h.detail = 'SIGTERM'
  AND h.seq = (SELECT min(x.seq) FROM soak.event x WHERE x.kind = 'healed' AND x.detail = 'SIGTERM' AND x.seq > b.seq)
JOIN soak.event e ON e.kind = 'rolled' AND e.seq BETWEEN b.seq AND h.seq
JOIN soak.identity w ON w.process = e.label
JOIN soak.outcome o ON o.kind = 'reap' AND o.old_worker = w.worker
JOIN soak.change c ON c.id = o.id AND c.token = o.old_token AND c.old_token < c.token AND c.at BETWEEN b.at AND e.at
WHERE b.kind = 'fault' AND b.detail = 'SIGTERM';

CREATE VIEW soak.check_cancelled AS
SELECT format('%s %s, visit %s: the handler was called for %s', h.machine, h.id, h.visit, h.detail) AS violation
FROM soak.event h WHERE h.kind = 'handled' AND h.detail LIKE 'gendurable:%';
