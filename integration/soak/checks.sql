-- What must not be. Each view soak.check_… returns a line per violation. The materialized ones in front are what they go by.

CREATE INDEX ON soak.event (kind, id, token, visit);
CREATE INDEX ON soak.event (kind, process);
CREATE INDEX ON soak.change (id, seq);
CREATE INDEX ON soak.change (xid, id);
CREATE INDEX ON soak.change (parent, parent_round);
CREATE INDEX ON soak.change (parent, joined) WHERE parent IS NOT NULL;
CREATE INDEX ON soak.change (label) WHERE op = 'I';
CREATE INDEX ON soak.booking (id, visit);
CREATE INDEX ON soak.hosted (name);
CREATE INDEX ON soak.signal (target, dedup);
CREATE INDEX ON soak.signal (tag);
CREATE INDEX ON soak.lost (key);
CREATE INDEX ON soak.lost (xid);
CREATE INDEX ON soak.holding (xid);
CREATE INDEX ON soak.holding (id, seq);
ANALYZE soak.holding, soak.payment, soak.rule, soak.event, soak.change, soak.signal, soak.lost, soak.booking, soak.hosted, gendurable.gen_durable, gendurable.signals;

-- A step's execution by a process: up to its return, or to the end of the process. One with a transaction of its own may run several times
-- under one claim.
CREATE MATERIALIZED VIEW soak.run AS
SELECT s.seq AS began, s.at AS began_at, coalesce(e.seq, d.seq, 9223372036854775807) AS ended, e.seq IS NULL AS interrupted, d.at AS died_at,
  s.process, s.id, s.visit, s.token, s.machine, s.step, s.n, s.label, s.key, s.attempt, s.signals, s.idempotency, s.fence, e.outcome, e.to_step, e.to_n,
  e.detail, e.policy, row_number() OVER (PARTITION BY s.id, s.token, s.visit ORDER BY s.seq) > 1 AS again
FROM soak.event s
LEFT JOIN LATERAL (SELECT x.* FROM soak.event x WHERE x.kind = 'ended' AND x.process = s.process AND x.id = s.id AND x.token = s.token
  AND x.visit = s.visit AND x.seq > s.seq ORDER BY x.seq LIMIT 1) e ON true
LEFT JOIN soak.event d ON d.kind = 'died' AND d.label = s.process
WHERE s.kind = 'started';
CREATE INDEX ON soak.run (id, token, visit);
CREATE INDEX ON soak.run (key, began);

-- Restarts: everything that their transactions have changed, which record themselves. asked is false for what waits for others that run again.
CREATE MATERIALIZED VIEW soak.restart AS
SELECT c.xid, c.id, min(c.seq) AS seq, bool_or(h.id IS NOT NULL) AS asked
FROM (SELECT DISTINCT xmin::text::bigint AS xmin FROM gendurable.history WHERE kind = 'admin.restart') x
JOIN soak.change c ON c.xid % 4294967296 = x.xmin
LEFT JOIN LATERAL (SELECT h.instance AS id FROM gendurable.history h
  WHERE h.kind = 'admin.restart' AND h.instance = c.id AND h.xmin::text::bigint = x.xmin LIMIT 1) h ON true
GROUP BY c.xid, c.id;
CREATE INDEX ON soak.restart (xid, id);

-- What ended a claim, or a visit of a kept one: old_token and old_visit say which.
CREATE MATERIALIZED VIEW soak.outcome AS
SELECT * FROM (
  SELECT c.*, CASE
    WHEN status = 'executing' AND visit = old_visit THEN NULL -- a heartbeat
    WHEN EXISTS (SELECT FROM soak.restart r WHERE r.xid = c.xid) THEN 'restart' -- of a node that was about to be skipped
    WHEN status = 'done' THEN 'done'
    WHEN failure = 'cancelled' THEN 'cancel' -- by an operator, or since no join waits for it
    WHEN crashes > old_crashes THEN 'reap'
    WHEN status = 'failed' THEN 'fail'
    WHEN status = 'awaiting_signal' THEN 'await'
    WHEN status = 'awaiting_children' AND round = old_round THEN 'rejoin'
    WHEN status = 'awaiting_children' OR round <> old_round THEN 'children'
    WHEN visit > old_visit THEN 'next'
    WHEN attempt > old_attempt THEN 'retry'
    ELSE 'release' END AS kind
  FROM soak.change c WHERE op = 'U' AND old_status = 'executing') o
WHERE kind IS NOT NULL;
CREATE INDEX ON soak.outcome (id, old_token, old_visit);
CREATE INDEX ON soak.outcome (xid, id);

-- From when to when a claim was held, in the order in which the database saw it: reaped says when its lease had run out, if it did.
CREATE MATERIALIZED VIEW soak.claim AS
SELECT c.id, c.token, c.seq AS began, (SELECT min(o.seq) FROM soak.outcome o WHERE o.id = c.id AND o.old_token = c.token AND o.kind = 'reap') AS reaped
FROM soak.change c WHERE c.status = 'executing' AND (c.op = 'U' AND c.old_status <> 'executing' OR c.op = 'I');
CREATE INDEX ON soak.claim (id, token);

-- What operators have done, as the tables show it, and joins that cancel who is left (lose). Nothing else makes these changes.
CREATE MATERIALIZED VIEW soak.operation AS
SELECT * FROM (
  SELECT c.*, CASE
    WHEN EXISTS (SELECT FROM soak.restart r WHERE r.xid = c.xid) THEN 'restart'
    WHEN failure = 'cancelled' AND old_status NOT IN ('done', 'failed') THEN CASE WHEN lost THEN 'lose' ELSE 'cancel' END
    WHEN old_status = 'failed' AND status = 'runnable' THEN 'retry'
    WHEN paused AND NOT old_paused THEN 'pause'
    WHEN old_paused AND NOT paused THEN 'resume'
    WHEN status = 'runnable' AND old_status = 'runnable' AND eligible <> old_eligible
      AND NOT EXISTS (SELECT FROM soak.outcome o WHERE o.id = c.id AND o.xid = c.xid) THEN 'reschedule' END AS verb -- else a Rejoin, and its signal
  FROM soak.change c WHERE op = 'U') o
WHERE verb IS NOT NULL;
CREATE INDEX ON soak.operation (id, verb);
ANALYZE soak.run, soak.outcome, soak.claim, soak.operation;

-- Signals that a committed outcome consumed, as its step saw them.
CREATE MATERIALIZED VIEW soak.consumption AS
SELECT DISTINCT o.xid, o.seq, r.id AS target, r.visit, s.id AS signal
FROM soak.run r CROSS JOIN LATERAL unnest(r.signals) AS s(id)
JOIN soak.outcome o ON o.id = r.id AND o.old_token = r.token AND o.old_visit = r.visit AND o.kind IN ('next', 'children', 'rejoin', 'done');
CREATE INDEX ON soak.consumption (signal);

-- Which process is which worker.
CREATE MATERIALIZED VIEW soak.identity AS
SELECT DISTINCT r.process, c.worker FROM soak.run r
JOIN soak.change c ON c.id = r.id AND c.token = r.token AND c.visit = r.visit AND c.status = 'executing';
ANALYZE soak.consumption, soak.identity;

-- The children of each round, as they stand after each transaction that changed that: how many have not been counted as ended, how many were
-- counted as done and as failed, which those that were skipped are not, and how many a visit was shown. Each such transaction has the parent's
-- lock, and so do those that change how the parent waits.
CREATE MATERIALIZED VIEW soak.census AS
SELECT parent, round, xid, seq, sum(live) OVER w AS live, sum(done) OVER w AS done, sum(failed) OVER w AS failed, sum(shown) OVER w AS shown
FROM (SELECT parent, round, xid, max(seq) AS seq, sum(live) AS live, sum(done) AS done, sum(failed) AS failed, sum(shown) AS shown
  FROM (
    SELECT parent, parent_round AS round, xid, seq, 1 AS live, 0 AS done, 0 AS failed, 0 AS shown FROM soak.change WHERE op = 'I' AND parent IS NOT NULL
    UNION ALL
    SELECT parent, parent_round, xid, seq, CASE WHEN joined IS NULL THEN 1 ELSE -1 END, CASE WHEN status = 'done' THEN 1 ELSE 0 END,
      CASE WHEN 'skipped' IN (failure, old_failure) THEN 0 WHEN joined IS NULL THEN -1 WHEN status = 'failed' THEN 1 ELSE 0 END, 0
    FROM soak.change WHERE op = 'U' AND parent IS NOT NULL AND (joined IS NULL) <> (old_joined IS NULL)
    UNION ALL
    SELECT parent, parent_round, xid, seq, 0, 0, 0, 1 FROM soak.change WHERE op = 'U' AND shown IS NOT NULL AND old_shown IS NULL
    UNION ALL
    SELECT id, round, xid, seq, 0, 0, 0, 0 FROM soak.change WHERE round <> 0 AND 'awaiting_children' IN (status, old_status)) d
  GROUP BY parent, round, xid) d
WINDOW w AS (PARTITION BY parent, round ORDER BY seq);
CREATE INDEX ON soak.census (parent, round, seq);

-- From when to when a parent waited for its children, and under which policy (NULL: until all have ended). A node that waits for others is
-- none of these, and neither are two changes of a row in the transaction that parks it.
CREATE MATERIALIZED VIEW soak.park AS
SELECT b.id, b.visit, b.seq AS began, b.xid AS began_xid, f.round, w.seq AS ended, w.xid AS ended_xid, w.at AS ended_at, w.status,
  w.timed_out AND NOT w.old_timed_out AS timed_out, r.policy,
  coalesce((r.policy->>'cancel')::boolean, false) AS cancels
FROM soak.change b
CROSS JOIN LATERAL (SELECT c.round FROM soak.change c WHERE c.id = b.id AND c.xid = b.xid ORDER BY c.seq DESC LIMIT 1) f
LEFT JOIN LATERAL (SELECT c.* FROM soak.change c WHERE c.id = b.id AND c.seq > b.seq AND c.status <> 'awaiting_children' ORDER BY c.seq LIMIT 1) w ON true
LEFT JOIN LATERAL (SELECT r.policy FROM soak.run r WHERE r.id = b.id AND r.token = b.old_token AND r.visit = b.old_visit AND r.policy IS NOT NULL
  AND b.old_status = 'executing' LIMIT 1) r ON true
WHERE b.op = 'U' AND b.old_status <> 'awaiting_children' AND b.status = 'awaiting_children' AND NOT (b.node IS NOT NULL AND b.visit = 0);
CREATE INDEX ON soak.park (id, visit);
ANALYZE soak.restart, soak.census, soak.park;

-- Occurrences of schedules that were begun: the instances that were inserted for them, by their correlation keys.
CREATE MATERIALIZED VIEW soak.occurrence AS
SELECT c.seq, c.xid, c.at, c.id, k.part[1] AS name, k.part[2]::timestamptz AS due
FROM soak.change c CROSS JOIN LATERAL regexp_match(c.guard, '^schedule:([a-z]+):([0-9]{4}-.*Z)$') AS k(part)
WHERE c.op = 'I' AND k.part IS NOT NULL;
CREATE INDEX ON soak.occurrence (name, due);

-- What a firing moved past, by arithmetic of its own: each schedule of the soak is due at all multiples of its period. It was begun then, or
-- before.
CREATE MATERIALIZED VIEW soak.due AS
SELECT f.seq, f.xid, f.at, f.since, f.name, f.catch_up, f.overlap, f.old_instance, f.old_paused, d.due,
  EXISTS (SELECT FROM soak.occurrence o WHERE o.name = f.name AND o.due = d.due AND o.seq < f.seq) AS begun
FROM soak.schedule f
CROSS JOIN LATERAL (SELECT CASE WHEN f.expression LIKE '@every %' THEN substr(f.expression, 8)::interval
  ELSE make_interval(secs => substring(f.expression FROM '^\*/([0-9]+) ')::int) END AS every) p
CROSS JOIN LATERAL generate_series(to_timestamp(ceil(extract(epoch FROM f.old_next) / extract(epoch FROM p.every)) * extract(epoch FROM p.every)),
  f.next - interval '1 microsecond', p.every) d(due)
WHERE f.op = 'U' AND f.next > f.old_next;
CREATE INDEX ON soak.due (name, due);
ANALYZE soak.occurrence, soak.due;

-- The rule of a gate that was in force from one change to the next. A change of a rule and a claim under it exclude each other.
CREATE MATERIALIZED VIEW soak.ruled AS
SELECT v.name, v.since, v.until, v.at, (v.rule).places, (v.rule).total, (v.rule).rate::float8 / (v.rule).rate_per * 1000000 AS rate, (v.rule).rate_burst,
  (v.rule).total_rate::float8 / (v.rule).total_rate_per * 1000000 AS total_rate, (v.rule).total_rate_burst, (v.rule).queue, (v.rule).machine, (v.rule).label, (v.rule).run
FROM (SELECT r.*, seq AS since, lead(seq, 1, 9223372036854775807) OVER (PARTITION BY name ORDER BY seq) AS until FROM soak.rule r) v
WHERE (v.rule).name IS NOT NULL;
CREATE INDEX ON soak.ruled (name, since);

-- How many begin at once, by key and by gate, when by the claim's clock, and what has begun there so far.
CREATE MATERIALIZED VIEW soak.beginning AS
SELECT p.key, p.seq, p.at, n.n, sum(n.n) OVER (PARTITION BY p.key ORDER BY p.seq) AS total
FROM (SELECT key, xid, max(at) AS at, min(seq) AS seq FROM soak.payment GROUP BY key, xid) p
CROSS JOIN LATERAL (SELECT count(*) AS n FROM soak.holding h WHERE h.xid = p.xid AND h.kind = 'begins'
  AND (h.key = p.key OR strpos(p.key, '/') = 0 AND (split_part(h.key, '/', 1) = p.key OR h.key = 'queue ' || p.key))) n;
CREATE INDEX ON soak.beginning (key, seq);
ANALYZE soak.ruled, soak.beginning;

-- Accepted ⇒ terminal, and as it was meant to end.

CREATE VIEW soak.check_accepted_ended AS
SELECT format('%s accepted as %s is %s', e.label, e.id, coalesce(g.status::text, 'gone')) AS violation
FROM soak.event e LEFT JOIN gendurable.gen_durable g ON g.id = e.id
WHERE e.kind = 'accepted' AND (g.id IS NULL OR g.status NOT IN ('done', 'failed') OR g.state->>'Label' <> e.label);

CREATE VIEW soak.check_stuck AS
SELECT format('%s %s is %s at %s, lane %s, since %s', fsm, id, status, step, pick_lane, updated_at) AS violation
FROM gendurable.gen_durable WHERE status NOT IN ('done', 'failed');

-- A retry of what its deadline has ended lifts the deadline.
CREATE VIEW soak.check_fate AS
SELECT format('%s %s: %s, should be %s (%s)', fsm, id, coalesce(failure, 'done'), state->>'Fate', last_error) AS violation
FROM gendurable.gen_durable g WHERE status IN ('done', 'failed') AND coalesce(failure, 'done') <> state->>'Fate'
  AND NOT (status = 'done' AND state->>'Fate' = 'deadline' AND EXISTS (SELECT FROM soak.operation r WHERE r.verb IN ('retry', 'restart') AND r.id = g.id))
  AND NOT (status = 'done' AND state->>'Fate' = 'error' AND finished_at >= (state->>'Until')::timestamptz) -- its fault has passed
  AND failure IS DISTINCT FROM 'cancelled' -- whether an operator wanted that, check_ordered knows
  AND failure IS DISTINCT FROM 'skipped'; -- whether an edge says so, check_edges knows

CREATE VIEW soak.check_result AS
SELECT format('Wait said %s %s of %s, which is %s', e.outcome, e.detail, e.id, g.status) AS violation
FROM soak.event e LEFT JOIN gendurable.gen_durable g ON g.id = e.id
WHERE e.kind = 'result' AND (e.outcome, coalesce(e.detail, '')) IS DISTINCT FROM (g.status::text, coalesce(g.failure, ''))
  AND NOT EXISTS (SELECT FROM soak.operation r JOIN soak.change c ON c.id = r.id AND c.seq < r.seq -- it was so, and was retried since
    WHERE r.verb IN ('retry', 'restart') AND r.id = e.id AND (c.status, coalesce(c.failure, '')) = (e.outcome, coalesce(e.detail, '')));

-- Who is retried is not parked again: its step may find no signal, and children that go on. A child that is retried goes on, too. Who is
-- cancelled takes no signal.
CREATE VIEW soak.check_wrong AS
SELECT format('%s %s at %s: %s', machine, coalesce(id::text, label), step, detail) AS violation FROM soak.event e
WHERE kind = 'wrong'
  AND NOT (detail ~ '^(woken for nothing|neither a signal|child |[0-9]+ children)' AND EXISTS (SELECT FROM soak.operation r
    WHERE r.verb IN ('retry', 'restart') AND (r.id = e.id AND r.visit = e.visit OR r.id = e.target)))
  AND NOT (detail ~ '^[0-9]+ have ended of what it sees' AND EXISTS (SELECT FROM soak.operation r -- a retried child counts as it first ended
    WHERE r.verb IN ('retry', 'restart') AND r.parent = e.id))
  AND NOT (detail LIKE 'no target%' AND EXISTS (SELECT FROM soak.operation c WHERE c.verb = 'cancel' AND c.label = e.label));

-- One outcome per claim; what is visible is what the claim's holder decided; what is acknowledged is there.

CREATE VIEW soak.check_one_outcome AS
SELECT format('instance %s, token %s, visit %s: %s', id, old_token, old_visit, string_agg(kind, ', ' ORDER BY seq)) AS violation
FROM soak.outcome GROUP BY id, old_token, old_visit HAVING count(*) > 1
UNION ALL
SELECT format('claim %s of instance %s ended %s times', old_token, id, count(*))
FROM soak.outcome WHERE status <> 'executing' GROUP BY id, old_token HAVING count(*) > 1;

-- The four that nobody decides: job machines' errors go to the retry policy, and who is out of attempts by crashes alone, or over its
-- deadline, or a node that is skipped, fails unheard.
CREATE VIEW soak.check_decided AS
SELECT format('%s %s, token %s, visit %s: %s to %s (%s) was decided by nobody', o.fsm, o.id, o.old_token, o.old_visit, o.kind, o.step, o.n) AS violation
FROM soak.outcome o
WHERE o.kind NOT IN ('reap', 'release', 'cancel', 'restart')
  AND NOT EXISTS (SELECT FROM soak.event e WHERE e.kind IN ('ended', 'handled', 'decided') AND e.id = o.id AND e.token = o.old_token AND e.visit = o.old_visit
    AND (e.outcome = o.kind AND (o.kind = 'fail' OR (e.to_step, e.to_n) = (o.step, o.n))
      OR e.outcome = 'error' AND o.fsm IN ('job', 'doomed') AND o.kind IN ('retry', 'fail')))
  AND NOT (o.fsm = 'doomed' AND o.failure = 'exhausted' AND o.attempt >= 3)
  AND NOT (o.kind = 'fail' AND o.failure IN ('deadline', 'skipped'));

CREATE VIEW soak.check_acknowledged AS
SELECT format('instance %s, token %s, visit %s: %s was said to be durable', e.id, e.token, e.visit, e.outcome) AS violation
FROM soak.event e
WHERE e.kind = 'committed' AND NOT EXISTS (SELECT FROM soak.outcome o
  WHERE o.id = e.id AND o.old_token = e.token AND o.old_visit = e.visit AND o.kind = e.outcome);

-- Each outcome that was committed is in the history once, in its own transaction, and nothing else is. A sweep of a process that has not
-- polled yet may not know that it has to record.
CREATE VIEW soak.check_recorded AS
SELECT format('%s %s, token %s, visit %s: %s is in the history %s times', o.fsm, o.id, o.old_token, o.old_visit, o.kind, h.times) AS violation
FROM soak.outcome o CROSS JOIN LATERAL (SELECT count(*) AS times FROM gendurable.history h
  WHERE h.instance = o.id AND h.visit = o.old_visit AND h.xmin::text::bigint = o.xid % 4294967296 AND strpos(h.kind, '.') = 0) h
WHERE o.kind NOT IN ('release', 'cancel', 'restart') AND (h.times > 1 OR h.times = 0 AND o.kind <> 'reap')
UNION ALL
SELECT format('%s of %s at visit %s was recorded, and never happened', h.kind, h.instance, h.visit)
FROM gendurable.history h WHERE strpos(h.kind, '.') = 0 AND h.kind <> 'deadline'
  AND NOT EXISTS (SELECT FROM soak.outcome o WHERE o.id = h.instance AND h.xmin::text::bigint = o.xid % 4294967296);

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
  (op = 'U' AND token <> old_token AND NOT (token > old_token AND old_status <> 'executing' AND status = 'executing'), 'a new token without a claim'),
  (op = 'U' AND status = 'executing' AND old_status <> 'executing' AND token = old_token, 'a claim without a new token'),
  (op = 'U' AND worker IS DISTINCT FROM old_worker AND worker IS NOT NULL AND old_worker IS NOT NULL, 'it changed hands without a release'),
  (op = 'U' AND visit NOT IN (old_visit, old_visit + 1), 'the visit jumps'),
  (op = 'U' AND (step, n) IS DISTINCT FROM (old_step, old_n) AND old_status <> 'executing', 'step or state moved without a claim'),
  (op = 'U' AND visit > old_visit AND old_status <> 'executing', 'the visit moved without a claim'),
  (op = 'U' AND old_status IN ('done', 'failed') AND (status, failure, joined, pending) IS DISTINCT FROM (old_status, old_failure, old_joined, old_pending) AND NOT (old_status = 'failed' AND (status = 'runnable' OR status = 'awaiting_children'
    AND EXISTS (SELECT FROM soak.restart r WHERE r.xid = c.xid))), 'it changed after its end'), -- by a retry or a restart
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

-- Two runs, side by side by the log.
CREATE VIEW soak.side AS
SELECT a.id, a.token, a.process, a.key, a.began_at, b.id AS other, b.token AS other_token, b.process AS other_process, b.began_at AS other_began_at
FROM soak.run a CROSS JOIN LATERAL (SELECT * FROM soak.run r WHERE r.id = a.id UNION SELECT * FROM soak.run r WHERE r.key = a.key) b
WHERE b.token <> a.token AND b.began > a.began AND b.began < a.ended;

-- Those of which neither claim was reaped before the other began. Which of the two the log has first proves nothing: a process may be
-- stopped when it has begun a step and not written so yet, and writes it down when the step has long been another's.
CREATE VIEW soak.beside AS
SELECT * FROM soak.side s
WHERE NOT EXISTS (SELECT FROM soak.claim x, soak.claim y WHERE x.id = s.id AND x.token = s.token AND y.id = s.other AND y.token = s.other_token
  AND (x.reaped < y.began OR y.reaped < x.began));

-- Who is cancelled, and retried at once, may still run, or just begin to.
CREATE VIEW soak.check_instance_overlap AS
SELECT format('instance %s ran by token %s in %s and, beside it, by %s in %s', id, token, process, other_token, other_process) AS violation
FROM soak.beside b
WHERE other = id AND NOT EXISTS (SELECT FROM soak.outcome o WHERE o.id = b.id AND o.old_token IN (b.token, b.other_token) AND o.kind = 'cancel');

-- A claim that is taken away keeps its key until its process says that the step has ended, or has lost its liveness lock. Then another
-- process deletes the note of the claim.
CREATE VIEW soak.check_key_overlap AS
SELECT format('key %s: %s ran by token %s in %s and, beside it, %s by %s in %s', key, id, token, process, other, other_token, other_process) AS violation
FROM soak.side s
WHERE key IS NOT NULL AND NOT EXISTS (SELECT FROM soak.lost d WHERE d.op = 'D' AND d.key = s.key
  AND (d.token = s.token AND d.by <> s.process OR d.token = s.other_token AND d.by <> s.other_process));

CREATE VIEW soak.check_key_noted AS
SELECT format('key %s: claim %s of instance %s was lost by a %s, and is not noted', key, old_token, id, kind) AS violation
FROM soak.outcome o WHERE kind IN ('reap', 'cancel') AND key IS NOT NULL
  AND NOT EXISTS (SELECT FROM soak.lost l WHERE l.op = 'I' AND l.xid = o.xid AND l.token = o.old_token AND l.worker = o.old_worker);

CREATE VIEW soak.check_key_forgotten AS
SELECT format('key %s: %s deleted the note of claim %s, whose worker lives in %s', d.key, d.by, d.token, i.process) AS violation
FROM soak.lost d JOIN soak.identity i ON i.worker = d.worker WHERE d.op = 'D' AND d.lives AND d.by <> i.process;

-- What a claim that was lost, or cancelled, runs may begin late.
CREATE VIEW soak.check_key_fences AS
SELECT format('key %s: %s ran with fencing token %s after %s', key, id, fence, newest) AS violation
FROM (SELECT r.*, max(fence) OVER (PARTITION BY key ORDER BY began) AS newest FROM soak.run r WHERE key IS NOT NULL) r
WHERE fence < newest
  AND NOT EXISTS (SELECT FROM soak.outcome o WHERE o.id = r.id AND o.old_token = r.token AND o.kind IN ('reap', 'cancel'));

CREATE VIEW soak.check_key_executing AS
SELECT format('key %s: %s rows execute at %s', key, held, seq) AS violation
FROM (SELECT key, seq, sum(d) OVER (PARTITION BY key ORDER BY seq) AS held
  FROM (SELECT key, seq, (status = 'executing')::int - (old_status = 'executing')::int AS d FROM soak.change WHERE op = 'U' AND key IS NOT NULL) c
  WHERE d <> 0) k
WHERE held > 1;

-- Rows that were inserted one after the other, for one key, queue and priority, are claimed first in this order. An operator may change it.
CREATE VIEW soak.check_key_order AS
SELECT format('key %s: place %s (%s) was claimed before place %s (%s)', key, place, id, was, was_id) AS violation
FROM (SELECT *, lag(place) OVER w AS was, lag(id) OVER w AS was_id, lag(first) OVER w AS was_first
  FROM (SELECT id, key, queue, priority, place, min(seq) FILTER (WHERE status = 'executing') AS first
    FROM soak.change c WHERE key IS NOT NULL AND place > 0 AND NOT EXISTS (SELECT FROM soak.operation o WHERE o.id = c.id)
    GROUP BY 1, 2, 3, 4, 5) c
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
  -- Who was cancelled needs no more; who was retried after that may go on without.
  AND NOT EXISTS (SELECT FROM soak.operation c WHERE c.verb = 'cancel' AND c.id = e.target)
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
WHERE g.fsm = 'collector' GROUP BY g.id, g.visit
HAVING g.visit > count(s.id) + 3 + (SELECT count(*) FROM soak.operation o WHERE o.id = g.id AND o.verb = 'retry'); -- each runs it once more

CREATE VIEW soak.check_timeout_early AS
SELECT format('instance %s timed out at %s, its time was %s', id, at, old_deadline) AS violation
FROM soak.change WHERE op = 'U' AND old_status IN ('awaiting_signal', 'awaiting_children') AND timed_out AND NOT old_timed_out
  AND (old_deadline IS NULL OR at < old_deadline);

-- Who is to end by its deadline ends so (fate), and not before; the newest error of whatever failed says why.
CREATE VIEW soak.check_deadline AS
SELECT format('%s %s failed at %s, its deadline was %s', fsm, id, finished_at, deadline) AS violation
FROM gendurable.gen_durable WHERE failure = 'deadline' AND (deadline IS NULL OR finished_at < deadline)
UNION ALL
SELECT format('%s %s failed (%s), and its newest error is %s', fsm, id, failure, errors->-1)
FROM gendurable.gen_durable WHERE status = 'failed' AND NOT coalesce(CASE failure WHEN 'deadline' THEN errors->-1->>'kind' = 'deadline'
  WHEN 'crashes' THEN errors->-1->>'kind' = 'crash' WHEN 'cancelled' THEN errors->-1->>'kind' = 'cancel'
  ELSE errors->-1->>'kind' = 'fail' END AND left(last_error, 1024) = errors->-1->>'error' AND jsonb_array_length(errors) <= 20, false);

-- Parents wake once for each time that they wait, in the commit that first makes the condition of their policy true, and see the children; no
-- child is an orphan.

-- Whether a parent has to go on after each transaction while it waited. A child that was retried counts as it first ended, and a step that
-- rejoins saw it otherwise: what such a Rejoin goes by is left out.
CREATE MATERIALIZED VIEW soak.waiting AS
SELECT p.id, p.visit, p.round, p.began, p.ended, p.ended_xid, p.status, p.timed_out, p.policy, e.xid, e.seq, e.live, a.shifted,
  e.live = 0 OR coalesce(e.done - a.done >= (p.policy->>'done')::int OR e.done - a.done + e.live < (p.policy->>'done')::int
    OR e.failed - a.failed >= (p.policy->>'failed')::int OR e.done + e.failed - a.done - a.failed >= (p.policy->>'ended')::int
    OR p.policy->>'stream' IS NOT NULL AND e.done + e.failed > e.shown, false) AS wakes
FROM soak.park p
CROSS JOIN LATERAL (SELECT coalesce((p.policy->>'sawDone')::int, 0) AS done, coalesce((p.policy->>'sawFailed')::int, 0) AS failed,
  (p.policy->>'again')::boolean AND EXISTS (SELECT FROM soak.operation o WHERE o.verb IN ('retry', 'restart') AND o.parent = p.id
    AND o.parent_round = p.round AND o.joined IS NOT NULL) AS shifted) a
JOIN soak.census e ON e.parent = p.id AND e.round = p.round AND e.seq >= p.began
  AND (p.ended IS NULL OR e.seq < p.ended OR e.xid = p.ended_xid);
ANALYZE soak.waiting;

CREATE VIEW soak.check_parent_wakes AS
SELECT format('parent %s woke %s times at visit %s', c.id, count(*), c.visit) AS violation
FROM soak.change c WHERE op = 'U' AND old_status = 'awaiting_children' AND status <> 'awaiting_children'
GROUP BY c.id, c.visit HAVING count(*) > 1 + (SELECT count(*) FROM soak.restart r JOIN soak.change x ON x.xid = r.xid AND x.id = r.id
  WHERE r.id = c.id AND x.visit = c.visit AND x.status = 'awaiting_children' AND x.old_status <> 'awaiting_children')
UNION ALL
SELECT format('parent %s, visit %s slept on at %s, though its condition was true: %s live, %s', id, visit, seq, live, policy)
FROM soak.waiting WHERE wakes AND NOT coalesce(shifted, false) AND xid IS DISTINCT FROM ended_xid
UNION ALL
SELECT format('parent %s, visit %s woke for nothing at %s: %s live, %s', w.id, w.visit, w.ended, w.live, w.policy)
FROM soak.waiting w WHERE xid = ended_xid AND status IN ('runnable', 'executing') AND NOT wakes AND NOT coalesce(shifted, false) AND NOT timed_out
  AND NOT ((policy->>'or')::boolean AND EXISTS (SELECT FROM soak.signal s WHERE s.op = 'I' AND s.target = w.id AND (s.seq < w.ended OR s.xid = w.xid)
    AND NOT EXISTS (SELECT FROM soak.signal x WHERE x.op = 'C' AND x.id = s.id AND x.seq < w.ended AND x.xid <> w.xid)))
UNION ALL
SELECT format('parent %s, visit %s slept on at signal %s', p.id, p.visit, s.id)
FROM soak.park p JOIN soak.signal s ON s.op = 'I' AND s.target = p.id AND s.seq > p.began AND (p.ended IS NULL OR s.seq < p.ended)
WHERE (p.policy->>'or')::boolean AND s.xid IS DISTINCT FROM p.ended_xid;

-- A step sees all children of its round; of a graph maybe not those that were added since it was claimed.
CREATE VIEW soak.check_join AS
SELECT format('parent %s, visit %s saw children %s, had %s', e.id, e.visit, e.children, k.ids) AS violation
FROM soak.event e JOIN soak.change x ON x.id = e.id AND x.token = e.token AND x.visit = e.visit AND x.status = 'executing' AND x.seq = (
  SELECT min(y.seq) FROM soak.change y WHERE y.id = e.id AND y.token = e.token AND y.visit = e.visit AND y.status = 'executing')
CROSS JOIN LATERAL (SELECT coalesce(array_agg(c.id), '{}') AS ids, coalesce(array_agg(c.id) FILTER (WHERE c.seq < x.seq), '{}') AS old
  FROM soak.change c WHERE c.op = 'I' AND c.parent = e.id AND c.parent_round = x.round) k
WHERE e.kind = 'joined' AND e.policy->>'stream' IS NULL
  AND NOT (coalesce(e.children, '{}') <@ k.ids AND k.old <@ coalesce(e.children, '{}') AND x.round <> 0);

-- A stream shows each child to one visit, each visit the same ones however often it runs, in the order in which the ends were committed: ends in
-- one transaction are in any order. It has shown all when nothing is left.
CREATE VIEW soak.check_stream AS
WITH portion AS (
  SELECT e.id, e.visit, e.seq, x.round, coalesce(e.children, '{}') AS children, coalesce((e.policy->>'left')::int, 0) AS left_over
  FROM soak.event e CROSS JOIN LATERAL (SELECT c.round FROM soak.change c
    WHERE c.id = e.id AND c.token = e.token AND c.visit = e.visit AND c.status = 'executing' LIMIT 1) x
  WHERE e.kind = 'joined' AND e.policy->>'stream' IS NOT NULL),
shown AS (
  SELECT p.id, p.round, p.visit, k.id AS child, k.n
  FROM (SELECT DISTINCT ON (id, visit) * FROM portion ORDER BY id, visit, cardinality(children) DESC) p
  CROSS JOIN LATERAL unnest(p.children) WITH ORDINALITY k(id, n))
SELECT format('parent %s, visit %s was shown %s, then %s', a.id, a.visit, a.children, b.children) AS violation
FROM portion a JOIN portion b ON b.id = a.id AND b.visit = a.visit AND b.seq > a.seq WHERE a.children <> '{}' AND b.children <> a.children
UNION ALL
SELECT format('child %s was shown to %s visits of %s', child, count(*), id) FROM shown GROUP BY id, child HAVING count(*) > 1
UNION ALL
SELECT format('parent %s was shown child %s, which ended at %s, after one that ended at %s', id, child, at, was)
FROM (SELECT s.*, g.at, max(g.at) OVER (PARTITION BY s.id, s.round ORDER BY s.visit, s.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS was
  FROM shown s CROSS JOIN LATERAL (SELECT e.seq AS at FROM soak.change c JOIN soak.census e ON e.parent = c.parent AND e.round = c.parent_round AND e.xid = c.xid
    WHERE c.id = s.child AND c.joined IS NOT NULL AND c.old_joined IS NULL ORDER BY c.seq LIMIT 1) g) o
WHERE at < was
UNION ALL
SELECT format('parent %s, visit %s: nothing is left, and child %s was never shown', p.id, p.visit, k.id)
FROM portion p JOIN soak.change k ON k.op = 'I' AND k.parent = p.id AND k.parent_round = p.round
WHERE p.left_over = 0 AND NOT EXISTS (SELECT FROM shown s WHERE s.id = p.id AND s.child = k.id);

-- A child is inserted by the outcome that begins its round; a node also by one of another node of its graph, all that this names, unless the root
-- has ended, or the node has found that it comes too late.
CREATE VIEW soak.check_orphan AS
SELECT format('child %s of %s was not inserted by the outcome of its parent''s round %s', k.id, k.parent, k.parent_round) AS violation
FROM soak.change k
WHERE k.op = 'I' AND k.parent IS NOT NULL AND NOT EXISTS (SELECT FROM soak.outcome o
  WHERE o.xid = k.xid AND (o.id = k.parent AND o.kind = 'children' AND o.round = abs(k.parent_round)
    OR o.fsm = 'delegate' AND o.parent = k.parent AND o.parent_round = k.parent_round AND k.node LIKE '%+%'))
UNION ALL
SELECT format('node %s adds %s nodes, and %s are there', o.id, n.adds, n.there)
FROM soak.outcome o CROSS JOIN LATERAL (
  SELECT CASE WHEN EXISTS (SELECT FROM soak.event h WHERE h.kind = 'handled' AND h.outcome = 'done' AND h.id = o.id AND h.token = o.old_token
      AND h.visit = o.old_visit)
    -- The commit locks the root before it looks whether that has ended: the root's last change is the one that it saw.
      OR (SELECT r.op = 'D' OR r.status IN ('done', 'failed') FROM soak.change r WHERE r.id = o.parent AND r.seq < o.seq ORDER BY r.seq DESC LIMIT 1) THEN 0
    ELSE (SELECT max((r.policy->>'adds')::int) FROM soak.run r WHERE r.id = o.id AND r.token = o.old_token AND r.visit = o.old_visit) END AS adds,
    (SELECT count(*) FROM soak.change k WHERE k.op = 'I' AND k.xid = o.xid AND k.parent = o.parent AND k.node LIKE '%+%') AS there) n
WHERE o.fsm = 'delegate' AND o.kind = 'done' AND n.adds <> n.there
UNION ALL
SELECT format('node %s came too late to add others, and the last one has not begun', o.id)
FROM soak.outcome o JOIN soak.event h ON h.kind = 'handled' AND h.outcome = 'done' AND h.id = o.id AND h.token = o.old_token AND h.visit = o.old_visit
WHERE o.fsm = 'delegate' AND o.kind = 'done' AND NOT EXISTS (SELECT FROM soak.change c
  WHERE c.parent = o.parent AND c.parent_round = o.parent_round AND c.node = 'last' AND c.seq < o.seq AND c.old_status = 'awaiting_children')
UNION ALL
SELECT format('node %s of %s was inserted %s times', node, parent, count(*))
FROM soak.change WHERE op = 'I' AND node IS NOT NULL GROUP BY parent, parent_round, node HAVING count(*) > 1
UNION ALL
SELECT format('child %s is %s and has not joined', id, status) FROM gendurable.gen_durable
WHERE parent_id IS NOT NULL AND status IN ('done', 'failed') AND joined IS NULL
UNION ALL
SELECT format('parent %s is %s and counts %s children', id, status, children_pending) FROM gendurable.gen_durable
WHERE children_pending <> 0 AND status <> 'awaiting_children' AND fsm = 'family' AND NOT (node IS NOT NULL AND visit = 0)
  -- Who is cancelled while it waits for its children waits for them no more.
  AND id NOT IN (SELECT o.id FROM soak.operation o WHERE o.verb IN ('cancel', 'lose') AND o.old_status = 'awaiting_children');

-- A child leaves the barrier once, however it ends: also by a cancel, and whatever becomes of it after a retry; and once more for each restart
-- that lets its parent wait for it again. A parent that waits counts those of its round that are left, and no others.
CREATE VIEW soak.check_barrier AS
SELECT format('child %s joined twice, at %s', id, seq) AS violation
FROM soak.change c WHERE op = 'U' AND old_joined IS NOT NULL AND joined IS DISTINCT FROM old_joined
  AND NOT (joined IS NULL AND EXISTS (SELECT FROM soak.restart r WHERE r.xid = c.xid))
UNION ALL
SELECT format('parent %s counts %s children at %s, %s are left', p.id, c.pending, c.seq, e.live)
FROM soak.park p JOIN soak.change c ON c.id = p.id AND c.seq >= p.began AND (p.ended IS NULL OR c.seq <= p.ended)
JOIN soak.census e ON e.parent = p.id AND e.round = p.round AND e.xid = c.xid
WHERE c.pending <> e.live AND NOT EXISTS (SELECT FROM soak.change l WHERE l.id = c.id AND l.xid = c.xid AND l.seq > c.seq)
  -- A Rejoin that has nothing to wait for takes those as left that its own transaction ends: nobody counts them, as while a parent runs.
  AND NOT (p.began_xid = p.ended_xid AND c.pending = e.live + (SELECT count(*) FROM soak.change k WHERE k.parent = p.id AND k.parent_round = p.round
    AND k.xid = c.xid AND k.joined IS NOT NULL AND k.old_joined IS NULL));

-- Who is left of a join that cancels the rest, or of a graph whose root has ended, is cancelled within some polls, unless an operator lets the
-- parent wait again, or run; and nobody else is.
CREATE VIEW soak.check_losers AS
SELECT format('%s %s of %s lives %s after the join that cancels it', k.fsm, k.id, p.id, coalesce(e.at::text, 'ever')) AS violation
FROM soak.park p JOIN soak.change k ON k.op = 'I' AND k.parent = p.id AND k.parent_round = p.round AND k.seq < p.ended
CROSS JOIN LATERAL (SELECT c.status FROM soak.change c WHERE c.id = k.id AND c.seq < p.ended ORDER BY c.seq DESC LIMIT 1) b
LEFT JOIN LATERAL (SELECT c.at - p.ended_at AS at FROM soak.change c WHERE c.id = k.id AND c.seq > p.ended AND c.status IN ('done', 'failed')
  ORDER BY c.seq LIMIT 1) e ON true
WHERE p.cancels AND b.status NOT IN ('done', 'failed') AND coalesce(e.at, '100 years') > interval '15 s'
  AND NOT EXISTS (SELECT FROM soak.event f WHERE f.kind = 'fault' AND f.detail IN ('restart of Postgres', 'read-only')
    AND f.at BETWEEN p.ended_at - interval '15 s' AND p.ended_at + interval '15 s')
  AND NOT EXISTS (SELECT FROM soak.restart r WHERE r.id IN (p.id, k.id) AND r.seq > p.ended)
UNION ALL
SELECT format('%s %s of %s lives %s after its root has ended', k.fsm, k.id, x.id, coalesce(e.at::text, 'ever'))
FROM soak.change x JOIN soak.change k ON k.op = 'I' AND k.parent = x.id AND k.node IS NOT NULL AND k.seq < x.seq
CROSS JOIN LATERAL (SELECT c.status FROM soak.change c WHERE c.id = k.id AND c.seq < x.seq ORDER BY c.seq DESC LIMIT 1) b
LEFT JOIN LATERAL (SELECT c.at - x.at AS at FROM soak.change c WHERE c.id = k.id AND c.seq > x.seq AND c.status IN ('done', 'failed') ORDER BY c.seq LIMIT 1) e ON true
WHERE x.op = 'U' AND x.status IN ('done', 'failed') AND x.old_status NOT IN ('done', 'failed')
  AND b.status NOT IN ('done', 'failed') AND coalesce(e.at, '100 years') > interval '15 s'
  AND NOT EXISTS (SELECT FROM soak.event f WHERE f.kind = 'fault' AND f.detail IN ('restart of Postgres', 'read-only')
    AND f.at BETWEEN x.at - interval '15 s' AND x.at + interval '15 s')
  AND NOT EXISTS (SELECT FROM soak.change y WHERE y.id = x.id AND y.seq > x.seq AND y.old_status IN ('done', 'failed') AND y.status NOT IN ('done', 'failed'))
UNION ALL
SELECT format('%s %s of %s was cancelled by no join that had ended', o.fsm, o.id, o.parent)
FROM soak.operation o WHERE o.verb = 'lose'
  AND NOT EXISTS (SELECT FROM soak.park p WHERE p.id = o.parent AND p.round = o.parent_round AND p.cancels AND p.ended < o.seq)
  AND NOT EXISTS (SELECT FROM soak.operation x WHERE x.verb = 'lose' AND x.id = o.parent AND x.seq < o.seq)
  AND NOT (EXISTS (SELECT FROM soak.change k WHERE k.op = 'I' AND k.id = o.id AND k.node IS NOT NULL)
    AND coalesce((SELECT c.status IN ('done', 'failed') FROM soak.change c WHERE c.id = o.parent AND c.seq < o.seq ORDER BY c.seq DESC LIMIT 1), false));

-- A restart runs again exactly what has failed beneath an instance, and what was skipped for that. These are the children of what it restarts, as
-- they were before: whole says that all of these are to run again that have failed by themselves, and not only one.
CREATE MATERIALIZED VIEW soak.rerun AS
WITH began AS (SELECT xid, min(seq) AS seq FROM soak.restart GROUP BY xid),
parent AS (
  SELECT r.xid, b.seq, x.id, x.round, r.asked AND (x.old_status = 'failed' OR x.old_status = 'awaiting_children') AS whole
  FROM soak.restart r JOIN began b USING (xid)
  CROSS JOIN LATERAL (SELECT c.* FROM soak.change c WHERE c.xid = r.xid AND c.id = r.id ORDER BY c.seq LIMIT 1) x
  WHERE EXISTS (SELECT FROM soak.park p WHERE p.id = x.id AND p.visit = x.visit AND p.round = x.round AND p.began < b.seq))
SELECT p.xid, p.id AS parent, p.whole, k.id, k.quorum, s.status, s.failure,
  EXISTS (SELECT FROM soak.change c WHERE c.xid = p.xid AND c.id = k.id AND c.old_status = 'failed') AS runs
FROM parent p JOIN soak.change k ON k.op = 'I' AND k.parent = p.id AND k.parent_round = p.round AND k.seq < p.seq
CROSS JOIN LATERAL (SELECT c.status, c.failure FROM soak.change c WHERE c.id = k.id AND c.seq < p.seq ORDER BY c.seq DESC LIMIT 1) s;
CREATE INDEX ON soak.rerun (xid, id);
ANALYZE soak.rerun;

-- What keeps a skipped one skipped: an edge that is not met, from a node that does not run again, or a quorum that can never be.
CREATE VIEW soak.check_restarted AS
WITH skipped AS (
  SELECT r.*, e.hard, e.unmet, e.able FROM soak.rerun r CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE e.needs < 3 AND m.missed AND NOT o.runs) AS hard, count(*) FILTER (WHERE m.missed) AS unmet,
      count(*) FILTER (WHERE e.needs = 3 AND (NOT m.missed OR o.runs)) AS able
    FROM gendurable.edges e JOIN soak.rerun o ON o.xid = r.xid AND o.id = e.from_id
    CROSS JOIN LATERAL (SELECT CASE o.status WHEN 'done' THEN e.needs = 2 WHEN 'failed' THEN e.needs IN (0, 3) ELSE false END AS missed) m
    WHERE e.to_id = r.id) e
  WHERE r.status = 'failed' AND r.failure = 'skipped')
SELECT format('restart %s of %s left out %s, which had failed (%s)', xid, parent, id, failure) AS violation
FROM soak.rerun WHERE whole AND status = 'failed' AND failure <> 'skipped' AND NOT runs
UNION ALL
SELECT format('restart %s ran %s again, which is skipped for others', xid, id) FROM skipped WHERE runs AND (hard > 0 OR able < quorum)
UNION ALL
SELECT format('restart %s left out %s, which was skipped for what runs again', xid, id)
FROM skipped WHERE NOT runs AND hard = 0 AND coalesce(able >= quorum, true) AND (whole OR unmet > 0)
UNION ALL
SELECT format('restart %s of one child of %s ran %s again that had failed', xid, parent, count(*))
FROM soak.rerun WHERE NOT whole AND runs AND failure <> 'skipped' GROUP BY xid, parent HAVING count(*) > 1
UNION ALL
SELECT format('instance %s was restarted as another, at %s', id, seq)
FROM soak.operation WHERE verb = 'restart' AND ((visit, step, n, token, abs(round)) IS DISTINCT FROM (old_visit, old_step, old_n, old_token, abs(old_round))
  OR old_status = 'failed' AND (attempt <> 0 OR crashes <> 0 OR paused OR failure IS NOT NULL) OR old_status = 'done');

-- Graphs: a node runs only when all that it waits for has ended as it needs, as it stood when the node was claimed first: an end may be void by a
-- restart, which lets the node wait again unless it has been claimed, even if that claim is given back before a step began. It is skipped only if
-- something has not, or its root ended before it began.
CREATE VIEW soak.check_edges AS
SELECT format('node %s ran %s by token %s, and had to wait for %s: it was %s; and they were %s', r.id, r.step, r.token, o.violated,
  (SELECT string_agg(format('%s at %s by %s', c.status, c.seq, c.xid), ', ' ORDER BY c.seq) FROM soak.change c WHERE c.id = r.id AND c.seq <= x.seq),
  (SELECT string_agg(format('%s %s at %s by %s', c.id, c.status, c.seq, c.xid), ', ' ORDER BY c.seq)
    FROM gendurable.edges e JOIN soak.change c ON c.id = e.from_id WHERE e.to_id = r.id AND c.seq <= x.seq)) AS violation
FROM soak.run r JOIN soak.change x ON x.id = r.id AND x.token = r.token AND x.status = 'executing' AND x.old_status <> 'executing'
JOIN soak.change i ON i.id = r.id AND i.op = 'I' AND i.node IS NOT NULL
CROSS JOIN LATERAL (SELECT min(c.seq) AS seq FROM soak.change c WHERE c.id = r.id AND c.status = 'executing' AND c.old_status <> 'executing'
  AND c.seq > (SELECT max(w.seq) FROM soak.change w WHERE w.id = r.id AND w.seq < x.seq AND (w.op = 'I' OR w.status = 'awaiting_children' OR w.old_status = 'failed'))) f
CROSS JOIN LATERAL (
  SELECT CASE WHEN count(*) FILTER (WHERE e.needs < 3 AND NOT m.met) > 0 THEN format('nodes %s', array_agg(e.from_id) FILTER (WHERE e.needs < 3 AND NOT m.met))
    WHEN count(*) FILTER (WHERE e.needs = 3 AND m.met) < i.quorum THEN 'its quorum' END AS violated
  FROM gendurable.edges e
  CROSS JOIN LATERAL (SELECT CASE WHEN x.visit = 0 AND x.attempt = 0 AND x.crashes = 0 THEN
      (SELECT c.status = 'done' AND e.needs <> 2 OR c.status = 'failed' AND e.needs IN (1, 2)
        FROM soak.change c WHERE c.id = e.from_id AND c.seq < f.seq ORDER BY c.seq DESC LIMIT 1)
    ELSE EXISTS (SELECT FROM soak.change c WHERE c.id = e.from_id AND c.op = 'U' AND c.seq < x.seq
      AND (c.status = 'done' AND e.needs <> 2 OR c.status = 'failed' AND e.needs IN (1, 2))) END AS met) m
  WHERE e.to_id = r.id) o
WHERE o.violated IS NOT NULL
UNION ALL
SELECT format('node %s was skipped (%s)', g.id, g.last_error)
FROM gendurable.gen_durable g WHERE g.failure = 'skipped'
  AND NOT EXISTS (SELECT FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
    WHERE e.to_id = g.id AND CASE f.status WHEN 'done' THEN e.needs = 2 ELSE e.needs = 0 END)
  AND NOT coalesce((SELECT count(*) FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
    WHERE e.to_id = g.id AND e.needs = 3 AND f.status = 'done') < g.wake_done, false)
  AND NOT EXISTS (SELECT FROM soak.change c WHERE c.id = g.parent_id AND c.status IN ('done', 'failed'));

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
JOIN soak.outcome o ON o.kind = 'reap' AND o.old_worker = w.worker AND o.at > e.at -- before that, its heartbeats may have come too late
JOIN soak.change c ON c.id = o.id AND c.token = o.old_token AND c.old_token < c.token AND c.at BETWEEN b.at AND e.at
WHERE b.kind = 'fault' AND b.detail = 'SIGTERM';

CREATE VIEW soak.check_cancelled AS
SELECT format('%s %s, visit %s: the handler was called for %s', h.machine, h.id, h.visit, h.detail) AS violation
FROM soak.event h WHERE h.kind = 'handled' AND h.detail LIKE 'gendurable:%';

-- Operators: what they want is done, and nothing else; what they are told is true.

CREATE VIEW soak.check_ordered AS
SELECT format('%s of %s was ordered by nobody', o.verb, o.id) AS violation
FROM soak.operation o
WHERE o.verb <> 'lose' AND NOT EXISTS (SELECT FROM soak.event e WHERE e.kind = 'ordered' AND e.id = o.id
    AND (e.detail = o.verb OR o.verb = 'reschedule' AND e.detail = 'run_now'))
  AND NOT (o.verb = 'restart' AND EXISTS (SELECT FROM soak.restart r JOIN soak.event e ON e.kind = 'ordered' AND e.id = r.id AND e.detail = 'restart'
    WHERE r.xid = o.xid))
  AND NOT (o.verb = 'resume' AND EXISTS (SELECT FROM soak.event e WHERE e.kind = 'ordered' AND e.id IS NULL AND e.detail = 'resume'))
  AND NOT (o.verb = 'cancel' AND EXISTS (SELECT FROM soak.event e JOIN gendurable.gen_durable g ON g.correlation_key = e.key -- by its key
    WHERE e.kind = 'ordered' AND e.id IS NULL AND e.detail = 'cancel' AND g.id = o.id))
  AND NOT (o.verb = 'cancel' AND EXISTS (
    WITH RECURSIVE above(id) AS (SELECT o.id UNION SELECT g.parent_id FROM above JOIN gendurable.gen_durable g ON g.id = above.id AND g.parent_id IS NOT NULL)
    SELECT FROM above JOIN soak.event e ON e.kind = 'ordered' AND e.id = above.id AND e.outcome = 'descendants'))
UNION ALL
SELECT format('%s of %s was said to be done', e.detail, x.id)
FROM soak.event e CROSS JOIN LATERAL (
  SELECT e.id WHERE e.outcome <> e.to_step OR e.detail <> 'cancel' UNION ALL SELECT unnest(e.children)) x(id)
WHERE e.kind = 'operated' AND e.id IS NOT NULL AND e.detail <> 'run_now' -- its time may come while the verb is under way
  AND NOT EXISTS (SELECT FROM soak.operation o WHERE o.id = x.id AND o.verb = e.detail);

-- After a cancel no further step runs, but for one that its claim's holder has begun, or begins before a beat or its own clock tells it.
CREATE VIEW soak.check_after_cancel AS
SELECT format('%s %s was cancelled at visit %s, and ran visit %s by token %s %s later', r.machine, r.id, c.visit, r.visit, r.token, r.began_at - c.at) AS violation
FROM soak.operation c JOIN soak.run r ON r.id = c.id AND r.token <= c.token
WHERE c.verb IN ('cancel', 'lose') AND (r.visit > c.visit OR r.began_at > c.at + interval '4.5 s' AND NOT EXISTS (SELECT FROM soak.event f
  WHERE f.kind = 'fault' AND f.detail = 'SIGSTOP' AND f.label = r.process AND f.at BETWEEN c.at - interval '15 s' AND r.began_at))
UNION ALL
SELECT format('instance %s was cancelled, and its claim %s ended as %s', c.id, o.old_token, o.kind)
FROM soak.operation c JOIN soak.outcome o ON o.id = c.id AND o.old_token <= c.token AND o.seq > c.seq
WHERE c.verb IN ('cancel', 'lose');

-- What is paused is not claimed.
CREATE VIEW soak.check_paused AS
SELECT format('instance %s was paused, and claimed by token %s', id, token) AS violation
FROM soak.change WHERE op = 'U' AND old_status <> 'executing' AND status = 'executing' AND old_paused;

-- Of a paused queue no step begins once the process knows, and none knows too late where its server can be reached. One that runs again
-- since its own transaction met a conflict has begun before; and of a queue that is open again the first may begin a moment before the
-- process has written down that it is. A step that has a slot begins, also where its process waits for the processor: seconds are allowed.
CREATE VIEW soak.check_paused_queue AS
SELECT format('%s knew that queue %s is paused, and began %s %s later', r.process, c.queue, r.id, r.began_at - k.at) AS violation
FROM soak.run r JOIN soak.change c ON c.id = r.id AND c.token = r.token AND c.status = 'executing' AND c.old_status <> 'executing'
CROSS JOIN LATERAL (SELECT k.at, k.detail FROM soak.event k
  WHERE k.kind = 'obeyed' AND k.process = r.process AND k.label = c.queue AND k.seq < r.began ORDER BY k.seq DESC LIMIT 1) k
WHERE k.detail = 'paused' AND r.visit = c.visit AND NOT r.again AND r.began_at > k.at + interval '2 s'
  AND NOT EXISTS (SELECT FROM soak.event f WHERE f.kind = 'fault' AND f.detail = 'SIGSTOP' AND f.label = r.process
    AND f.at BETWEEN k.at - interval '15 s' AND r.began_at)
  AND NOT EXISTS (SELECT FROM soak.event u WHERE u.kind = 'obeyed' AND u.process = r.process AND u.label = c.queue AND u.detail <> 'paused'
    AND u.at BETWEEN r.began_at AND r.began_at + interval '0.5 s')
UNION ALL
SELECT format('queue %s was paused, and %s began %s %s later', p.label, r.process, r.id, r.began_at - p.at)
FROM soak.event p JOIN soak.event u ON u.kind = 'resuming' AND u.label = p.label
  AND u.seq = (SELECT min(x.seq) FROM soak.event x WHERE x.kind = 'resuming' AND x.label = p.label AND x.seq > p.seq)
JOIN soak.run r ON r.began BETWEEN p.seq AND u.seq AND r.began_at > p.at + interval '4 s' AND NOT r.again
JOIN soak.change c ON c.id = r.id AND c.token = r.token AND c.status = 'executing' AND c.old_status <> 'executing' AND c.queue = p.label AND c.visit = r.visit
WHERE p.kind = 'paused' AND NOT EXISTS (
  SELECT FROM soak.event f WHERE f.kind = 'fault' AND f.detail IN ('black hole', 'restart of Postgres', 'read-only', 'SIGSTOP', 'pool exhausted')
    AND (f.label IS NULL OR f.label = r.process) AND f.at < r.began_at AND f.at > p.at - interval '15 s')
  -- Nor is it held against a process that just then gets no connection, or no answer, for other reasons, e.g. since the machine is too busy.
  AND NOT EXISTS (SELECT FROM soak.event f WHERE f.kind = 'struggled' AND f.process = r.process AND f.at BETWEEN r.began_at - interval '15 s' AND r.began_at);

-- A retry goes on in the same visit, with all that was there; and every further run of a visit is given the signals that the ones before saw.
CREATE VIEW soak.check_retried AS
SELECT format('instance %s was retried as another, at %s', id, seq) AS violation
FROM soak.operation WHERE verb = 'retry' AND ((visit, step, n, token, round, joined, timed_out)
    IS DISTINCT FROM (old_visit, old_step, old_n, old_token, old_round, old_joined, old_timed_out)
  OR attempt <> 0 OR crashes <> 0 OR paused OR failure IS NOT NULL)
UNION ALL
SELECT format('instance %s, visit %s saw signals %s, then %s', a.id, a.visit, a.signals, b.signals)
FROM soak.run a JOIN soak.run b ON b.id = a.id AND b.visit = a.visit AND b.token > a.token
WHERE NOT coalesce(a.signals, '{}') <@ coalesce(b.signals, '{}')
  AND NOT EXISTS (SELECT FROM soak.operation o WHERE o.verb = 'restart' AND o.id = a.id AND o.status = 'awaiting_children'); -- which waits for no signal any more

-- Hosts: what was committed is there, what was rolled back is not, and of what nobody knows all is there or nothing.
CREATE VIEW soak.check_hosted AS
SELECT format('transaction %s was %s: %s', e.label, e.outcome, coalesce(w.what || CASE WHEN f.xid IS NULL THEN ' is not there' ELSE ' is' END,
  CASE WHEN h.xid IS NULL THEN 'it is not there' ELSE 'it is' END)) AS violation
FROM soak.event e LEFT JOIN soak.hosted h ON h.name = e.label
LEFT JOIN LATERAL unnest(e.tags) w(what) ON true
LEFT JOIN LATERAL (SELECT c.xid FROM soak.change c WHERE c.op = 'I' AND c.label = w.what
  UNION ALL SELECT s.xid FROM soak.signal s WHERE s.op = 'I' AND s.tag = w.what) f ON true
WHERE e.kind = 'hosted' AND CASE e.outcome
  WHEN 'committed' THEN h.xid IS NULL OR w.what IS NOT NULL AND f.xid IS DISTINCT FROM h.xid
  WHEN 'rolled back' THEN h.xid IS NOT NULL OR f.xid IS NOT NULL
  ELSE w.what IS NOT NULL AND f.xid IS DISTINCT FROM h.xid END
UNION ALL
SELECT format('transaction %s took effect %s times', name, count(*)) FROM soak.hosted GROUP BY name HAVING count(*) > 1;

-- A step's own transaction: its writes, its letter and its outcome, once and together.
CREATE VIEW soak.check_booking AS
SELECT format('teller %s, visit %s: %s bookings', o.id, o.old_visit, count(b.id)) AS violation
FROM soak.outcome o LEFT JOIN soak.booking b ON b.id = o.id AND b.visit = o.old_visit AND b.token = o.old_token AND b.xid = o.xid
WHERE o.fsm = 'teller' AND o.old_step = 'book' AND o.kind IN ('next', 'done') GROUP BY o.id, o.old_visit, o.seq HAVING count(b.id) <> 1
UNION ALL
SELECT format('teller %s, visit %s booked without its outcome', b.id, b.visit)
FROM soak.booking b WHERE NOT EXISTS (SELECT FROM soak.outcome o
  WHERE o.id = b.id AND o.old_visit = b.visit AND o.xid = b.xid AND o.kind IN ('next', 'done'))
UNION ALL
SELECT format('teller %s, visit %s: letter %s came %s times', b.id, b.visit, b.letter, count(s.id))
FROM soak.booking b LEFT JOIN soak.signal s ON s.op = 'I' AND s.tag = b.letter AND s.xid = b.xid
WHERE b.letter IS NOT NULL GROUP BY b.id, b.visit, b.letter HAVING count(s.id) <> 1
UNION ALL
SELECT format('signal %s came without its booking', s.tag)
FROM soak.signal s WHERE s.op = 'I' AND s.tag LIKE '%/box/%#v%' AND NOT EXISTS (SELECT FROM soak.booking b WHERE b.xid = s.xid AND b.letter = s.tag)
UNION ALL
SELECT format('%s bookings moved accounts by %s', b.n, a.n)
FROM (SELECT count(*) AS n FROM soak.booking) b, (SELECT sum(n) AS n FROM soak.account) a WHERE a.n <> 2 * b.n;

-- Schedules: each occurrence is begun once, by the transaction that moved its schedule past it, not before its time, and after those before it.
CREATE VIEW soak.check_occurrence_once AS
SELECT format('%s at %s was begun %s times', name, due, count(*)) AS violation FROM soak.occurrence GROUP BY name, due HAVING count(*) > 1
UNION ALL
SELECT format('%s at %s was begun, and its schedule did not move past it', o.name, o.due)
FROM soak.occurrence o WHERE NOT EXISTS (SELECT FROM soak.due d WHERE d.name = o.name AND d.due = o.due AND d.xid = o.xid)
UNION ALL
SELECT format('%s at %s was begun at %s', name, due, at) FROM soak.occurrence WHERE at < due;

CREATE VIEW soak.check_occurrence_order AS
SELECT format('%s at %s was begun after that at %s', name, due, was) AS violation
FROM (SELECT name, due, lag(due) OVER (PARTITION BY name ORDER BY seq) AS was FROM soak.occurrence) o WHERE due <= was
UNION ALL
SELECT format('the newest occurrence of %s is %s, and not %s', s.name, s.last, n.due)
FROM soak.schedule s CROSS JOIN LATERAL (SELECT max(o.due) AS due FROM soak.occurrence o WHERE o.name = s.name AND o.xid = s.xid) n
WHERE s.op = 'U' AND n.due IS DISTINCT FROM s.last AND (n.due IS NOT NULL OR s.last IS DISTINCT FROM s.old_last);

-- None is lost beyond the policies. Whoever fires looks at the clock between the beginning of its transaction (since) and its end (at): what is
-- a minute late at the end was on time, what is over a minute late at the beginning was missed.
CREATE VIEW soak.check_occurrence_lost AS
SELECT format('%s goes on from %s, it had come to %s', name, old_next, was) AS violation
FROM (SELECT *, lag(next) OVER (PARTITION BY name ORDER BY seq) AS was FROM soak.schedule) s WHERE op <> 'I' AND old_next IS DISTINCT FROM was
UNION ALL
SELECT format('%s at %s was not begun', name, due) FROM soak.due
WHERE NOT begun AND overlap = 'allow' AND (catch_up = 'all' OR at <= due + interval '1 minute')
UNION ALL
SELECT format('%s: of those from %s to %s none was begun', name, min(due), max(due)) FROM soak.due
WHERE overlap = 'allow' AND catch_up = 'latest' GROUP BY seq, name HAVING NOT bool_or(begun);

CREATE VIEW soak.check_occurrence_missed AS
SELECT format('%s at %s was missed, and begun at %s', d.name, d.due, d.at) AS violation
FROM soak.due d WHERE d.begun AND d.catch_up <> 'all' AND d.since > d.due + interval '1 minute'
  AND NOT (d.catch_up = 'latest' AND NOT EXISTS (SELECT FROM soak.due l WHERE l.seq = d.seq AND l.due > d.due));

-- Where instances must not overlap, none begins beside its predecessor, also by hand; and none is dropped without one.
CREATE VIEW soak.check_occurrence_overlap AS
SELECT format('%s: %s were begun at once', name, count(*)) AS violation
FROM soak.due WHERE overlap = 'skip' AND begun GROUP BY seq, name HAVING count(*) > 1
UNION ALL
SELECT format('%s began %s, and %s had not ended', s.name, s.instance, s.old_instance)
FROM soak.schedule s WHERE s.op = 'U' AND s.overlap = 'skip' AND s.instance <> s.old_instance
  AND NOT EXISTS (SELECT FROM soak.change c WHERE c.id = s.old_instance AND c.seq < s.seq AND c.status IN ('done', 'failed'))
UNION ALL
SELECT format('%s at %s was dropped, and %s had ended', name, min(due), coalesce(old_instance::text, 'nothing'))
FROM soak.due d WHERE overlap = 'skip'
  AND (old_instance IS NULL OR EXISTS (SELECT FROM soak.event e WHERE e.kind = 'committed' AND e.outcome = 'done' AND e.id = d.old_instance AND e.at < d.since))
GROUP BY seq, name, old_instance HAVING NOT bool_or(begun) AND bool_or(at <= due + interval '1 minute');

-- What is paused is not fired; what is run by hand is there, and was ordered.
CREATE VIEW soak.check_schedule_operated AS
SELECT format('%s was paused, and moved past %s', name, due) AS violation FROM soak.due WHERE old_paused
UNION ALL
SELECT format('%s was said to be run as %s', e.label, e.id) FROM soak.event e
WHERE e.kind = 'meddled' AND e.detail = 'run_schedule' AND NOT EXISTS (SELECT FROM soak.change c
  WHERE c.op = 'I' AND c.id = e.id AND starts_with(c.guard, 'schedule:' || e.label || ':run:'))
UNION ALL
SELECT format('%s was run by hand %s times, %s were ordered', r.name, count(*), o.n)
FROM (SELECT split_part(guard, ':', 2) AS name FROM soak.change WHERE op = 'I' AND guard LIKE 'schedule:%:run:%') r
CROSS JOIN LATERAL (SELECT count(*) AS n FROM soak.event e WHERE e.kind = 'ordered' AND e.detail = 'run_schedule' AND e.label = r.name) o
GROUP BY r.name, o.n HAVING count(*) > o.n;

-- Gates: nobody takes a place beyond those that there are, of a key, of a whole run, of a queue, and of all keys of a gate. A claim that has
-- begun may still go by what a key had before, so for a few seconds the most counts that it had.
CREATE VIEW soak.check_places AS
WITH own AS MATERIALIZED (SELECT o.key, o.places, o.at, lead(o.at, 1, 'infinity') OVER (PARTITION BY o.key ORDER BY o.seq) AS until FROM soak.own o)
SELECT format('%s %s: %s takes place %s of %s', t.kind, t.key, t.id, t.held, r.places) AS violation
FROM (SELECT h.*, sum(delta) OVER (PARTITION BY kind, key ORDER BY seq, delta) AS held FROM soak.holding h WHERE kind <> 'begins') t
JOIN soak.ruled r ON t.seq > r.since AND t.seq < r.until
  AND CASE WHEN t.kind = 'seat' THEN r.queue = t.key AND r.label IS NULL ELSE r.name = split_part(t.key, '/', 1) AND r.run = (t.kind = 'run') END
WHERE t.delta = 1 AND t.held > r.places
  AND t.held > coalesce((SELECT max(o.places) FROM own o WHERE o.key = t.key AND o.at <= t.at AND o.until > t.at - interval '5 s'), 0)
UNION ALL
SELECT format('%s %s: %s takes place %s of its own %s', t.kind, t.key, t.id, t.held, o.places)
FROM (SELECT h.*, sum(delta) OVER (PARTITION BY kind, key ORDER BY seq, delta) AS held FROM soak.holding h WHERE kind IN ('place', 'run')) t
JOIN own o ON o.key = t.key AND o.at < t.at - interval '5 s' AND o.until > t.at
WHERE t.delta = 1 AND t.held > o.places
UNION ALL
SELECT format('%s: %s takes place %s of %s of all', t.name, t.id, t.held, r.total)
FROM (SELECT h.*, split_part(key, '/', 1) AS name, sum(delta) OVER (PARTITION BY split_part(key, '/', 1) ORDER BY seq, delta) AS held
  FROM soak.holding h WHERE kind = 'place') t
JOIN soak.ruled r ON r.name = t.name AND t.seq > r.since AND t.seq < r.until
WHERE t.delta = 1 AND t.held > r.total;

-- Whoever begins behind a gate has its place, or has paid. A front claim looks at the gates a moment before it claims, so a gate counts once it
-- is a few seconds old.
CREATE VIEW soak.check_unplaced AS
SELECT format('%s %s began beside gate %s', c.fsm, c.id, r.name) AS violation
FROM soak.change c JOIN gendurable.gen_durable g ON g.id = c.id
JOIN soak.ruled r ON c.seq > r.since AND c.seq < r.until AND r.at < c.at - interval '10 s'
  AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
WHERE c.op = 'U' AND c.old_status <> 'executing' AND c.status = 'executing'
  AND NOT CASE WHEN r.run THEN (SELECT coalesce(sum(h.delta), 0) FROM soak.holding h WHERE h.id = c.id AND h.kind = 'run' AND (h.seq < c.seq OR h.xid = c.xid)) > 0
    WHEN r.queue IS NOT NULL THEN EXISTS (SELECT FROM soak.holding h WHERE h.xid = c.xid AND h.id = c.id AND h.kind = 'seat')
    ELSE EXISTS (SELECT FROM soak.holding h WHERE h.xid = c.xid AND h.id = c.id AND h.kind = 'begins' AND split_part(h.key, '/', 1) = r.name)
      AND (coalesce(r.places, r.total) IS NULL OR EXISTS (SELECT FROM soak.holding h WHERE h.xid = c.xid AND h.id = c.id AND h.kind = 'place')) END
  AND NOT EXISTS (SELECT FROM soak.ruled x WHERE r.label IS NOT NULL AND NOT r.run AND x.machine = g.fsm AND c.seq > x.since AND c.seq < x.until);

-- In any interval t at most burst + t · rate begin, of a key and of all keys of a gate, by the clocks of the claims, to the microsecond.
CREATE VIEW soak.check_rates AS
SELECT format('%s: %s more than its rate and its burst allow had begun by %s', key, round((over - burst)::numeric, 3), at) AS violation
FROM (SELECT b.key, b.at, r.burst, b.total - e.t * r.rate
    - min(b.total - b.n - e.t * r.rate) OVER (PARTITION BY b.key ORDER BY b.seq) AS over
  FROM soak.beginning b CROSS JOIN LATERAL (SELECT date_part('epoch', b.at - '2026-01-01') AS t) e
  CROSS JOIN LATERAL (SELECT CASE WHEN strpos(b.key, '/') > 0 OR x.queue IS NOT NULL THEN x.rate ELSE x.total_rate END AS rate,
    CASE WHEN strpos(b.key, '/') > 0 OR x.queue IS NOT NULL THEN x.rate_burst ELSE x.total_rate_burst END AS burst
    FROM soak.ruled x WHERE x.name = split_part(b.key, '/', 1) ORDER BY x.since LIMIT 1) r) o
WHERE over > burst + 0.01
UNION ALL
SELECT format('%s began at %s and has not paid', h.id, h.key)
FROM soak.holding h JOIN soak.ruled r ON r.rate IS NOT NULL AND h.seq > r.since AND h.seq < r.until
  AND (split_part(h.key, '/', 1) = r.name OR h.key = 'queue ' || r.queue)
WHERE h.kind = 'begins' AND NOT EXISTS (SELECT FROM soak.payment p WHERE p.xid = h.xid AND p.key = CASE WHEN h.key LIKE 'queue %' THEN r.name ELSE h.key END);

-- Nothing is left of places when everything has ended.
CREATE VIEW soak.check_places_left AS
SELECT format('%s %s: %s places are taken at the end', kind, key, sum(delta)) AS violation
FROM soak.holding GROUP BY kind, key HAVING sum(delta) <> 0
UNION ALL
SELECT format('%s is %s and has a place', id, status) FROM gendurable.gen_durable WHERE place IS NOT NULL OR seat IS NOT NULL;
