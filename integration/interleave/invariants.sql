-- What the invariants are asked of: a history of every change, kept by triggers, and what the verbs intended and were told.
CREATE SCHEMA interleave;
CREATE SEQUENCE interleave.clock;

CREATE UNLOGGED TABLE interleave.change (
  seq bigint NOT NULL DEFAULT nextval('interleave.clock'),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  actor text NOT NULL DEFAULT current_setting('application_name'),
  overtook bigint, -- a claim: the row of the same key that was due before it
  o gendurable.gen_durable, n gendurable.gen_durable);
CREATE UNLOGGED TABLE interleave.letter (
  seq bigint NOT NULL DEFAULT nextval('interleave.clock'),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  actor text NOT NULL DEFAULT current_setting('application_name'),
  o gendurable.signals, n gendurable.signals);

CREATE FUNCTION interleave.note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE before bigint;
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO interleave.change (n) VALUES (NEW);
  ELSIF TG_OP = 'DELETE' THEN
    DELETE FROM interleave.change c WHERE c.xid = pg_current_xact_id() AND (c.n).id = OLD.id AND (c.o).id IS NULL;
    IF FOUND THEN RETURN NULL; END IF; -- what holds a key for one transaction: nobody sees it
    INSERT INTO interleave.change (o) VALUES (OLD);
  ELSE
    IF OLD.status = 'runnable' AND NEW.status = 'executing' AND NEW.partition_key IS NOT NULL THEN
      SELECT g.id INTO before FROM gendurable.gen_durable g
      WHERE g.partition_key = NEW.partition_key AND g.queue = NEW.queue AND g.status = 'runnable' AND NOT g.paused
        AND g.eligible_at <= statement_timestamp() AND (g.priority, g.eligible_at, g.id) < (OLD.priority, OLD.eligible_at, OLD.id) LIMIT 1;
    END IF;
    IF OLD.status IN ('done', 'failed') AND NEW.status = 'runnable' AND NEW.commit_id = OLD.commit_id THEN
      UPDATE interleave.change c SET n = NEW WHERE c.xid = pg_current_xact_id() AND (c.n).id = NEW.id AND (c.n).commit_id = NEW.commit_id;
      IF FOUND THEN RETURN NULL; END IF; -- an end that its own transaction takes back, since a signal waits, is one move
    END IF;
    INSERT INTO interleave.change (overtook, o, n) VALUES (before, OLD, NEW);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER interleave AFTER INSERT OR UPDATE OR DELETE ON gendurable.gen_durable FOR EACH ROW EXECUTE FUNCTION interleave.note_change();

CREATE FUNCTION interleave.note_letter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO interleave.letter (n) VALUES (NEW);
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO interleave.letter (o) VALUES (OLD);
  ELSE
    INSERT INTO interleave.letter (o, n) VALUES (OLD, NEW);
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER interleave AFTER INSERT OR UPDATE OR DELETE ON gendurable.signals FOR EACH ROW EXECUTE FUNCTION interleave.note_letter();

CREATE UNLOGGED TABLE interleave.plan (
  seq bigint NOT NULL DEFAULT nextval('interleave.clock'),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  actor text NOT NULL DEFAULT current_setting('application_name'),
  o gendurable.schedules, n gendurable.schedules);
CREATE FUNCTION interleave.note_plan() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO interleave.plan (o, n) VALUES (OLD, NEW);
  RETURN NULL;
END $$;
CREATE TRIGGER interleave AFTER INSERT OR UPDATE OR DELETE ON gendurable.schedules FOR EACH ROW EXECUTE FUNCTION interleave.note_plan();

CREATE UNLOGGED TABLE interleave.taken (
  seq bigint NOT NULL DEFAULT nextval('interleave.clock'),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  actor text NOT NULL DEFAULT current_setting('application_name'),
  o gendurable.lost_claims, n gendurable.lost_claims);
CREATE FUNCTION interleave.note_taken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO interleave.taken (o, n) VALUES (OLD, NEW);
  RETURN NULL;
END $$;
CREATE TRIGGER interleave AFTER INSERT OR UPDATE OR DELETE ON gendurable.lost_claims FOR EACH ROW EXECUTE FUNCTION interleave.note_taken();

ALTER TABLE gendurable.schedules SET (autovacuum_enabled = false);
ALTER TABLE gendurable.lost_claims SET (autovacuum_enabled = false);
ALTER TABLE interleave.taken SET (autovacuum_enabled = false);
ALTER TABLE interleave.plan SET (autovacuum_enabled = false);
ALTER TABLE gendurable.gen_durable SET (autovacuum_enabled = false);
ALTER TABLE gendurable.history_rest SET (autovacuum_enabled = false);
ALTER TABLE gendurable.signals SET (autovacuum_enabled = false);
ALTER TABLE interleave.change SET (autovacuum_enabled = false);
ALTER TABLE interleave.letter SET (autovacuum_enabled = false);

CREATE TABLE interleave.reference (instance bigint REFERENCES gendurable.gen_durable (id) ON DELETE CASCADE);

-- Every attempt to commit: the fence it was sent with, what it was given, and whether it was reported as applied. Kinds are those of the
-- commit statement and those of facts_test.go. What has no worker is no outcome: a sweep, or an operator's verb, whose mark may be on any row.
CREATE UNLOGGED TABLE interleave.outcome (mark uuid, actor text, id bigint, worker text, token bigint, visit bigint, kind text,
  presented bigint[], ignored bigint[], children int, applied boolean, unless text[] DEFAULT '{}');
CREATE UNLOGGED TABLE interleave.held (actor text, worker text, id bigint, token bigint);
CREATE UNLOGGED TABLE interleave.stale (actor text, worker text, id bigint, token bigint, visit bigint);
CREATE UNLOGGED TABLE interleave.claimed (actor text, worker text, id bigint, token bigint, awaited bigint[], fencing bigint, lingers boolean);
CREATE UNLOGGED TABLE interleave.sent (actor text, to_id bigint, to_key text, name text, target bigint, woken boolean, duplicate boolean,
  accepted boolean);
CREATE UNLOGGED TABLE interleave.inserted (actor text, id bigint, duplicate boolean, key text);

-- What the function of a step's own transaction has written, and the marks of all attempts at one.
CREATE UNLOGGED TABLE interleave.booked (mark uuid);
CREATE UNLOGGED TABLE interleave.owned (mark uuid);

-- What a firing read and decided, and whether it was told of each occurrence; who looked for what is due, and at what time.
CREATE UNLOGGED TABLE interleave.firing (actor text, name text, was timestamptz, next timestamptz, keys text[], told boolean);
CREATE UNLOGGED TABLE interleave.tried (name text, at timestamptz);

-- Workers that live throughout; claims whose steps have ended, as their workers reported; who asked whether somebody lingers under a
-- key, and the answer.
CREATE UNLOGGED TABLE interleave.alive (worker text);
CREATE UNLOGGED TABLE interleave.landed (worker text, token bigint);
CREATE UNLOGGED TABLE interleave.asked (worker text, key text, lingers boolean);

-- Changes of gates; what keys owe at first; keys that were told of too many requests.
CREATE UNLOGGED TABLE interleave.ruled (seq bigint NOT NULL DEFAULT nextval('interleave.clock'), o gendurable.gates, n gendurable.gates);
CREATE FUNCTION interleave.note_ruled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO interleave.ruled (o, n) VALUES (OLD, NEW);
  RETURN NULL;
END $$;
CREATE TRIGGER interleave AFTER INSERT OR UPDATE OR DELETE ON gendurable.gates FOR EACH ROW EXECUTE FUNCTION interleave.note_ruled();
CREATE UNLOGGED TABLE interleave.owed (key text, debt float8);
CREATE UNLOGGED TABLE interleave.throttled (key text);
-- Keys that were reported as closed, or as having a weight; who has gone through the lines.
CREATE UNLOGGED TABLE interleave.closed (key text);
CREATE UNLOGGED TABLE interleave.weighed (key text);
CREATE UNLOGGED TABLE interleave.granted (key text, places int);
CREATE UNLOGGED TABLE interleave.refiled (actor text);
-- Instances that a caller of Wait was told of.
CREATE UNLOGGED TABLE interleave.waited (actor text, id bigint);

-- Edits, rewinds and migrations: the copy that each was decided from (NULL: it compares no visit), what it writes, and what it was told.
CREATE UNLOGGED TABLE interleave.edited (actor text, id bigint, verb text, version int, visit bigint, step text, was jsonb, new jsonb,
  to_version int, to_step text, told boolean);
-- What inserts by rule were told: the instance, the number in the state of the spec, its policy and its window.
CREATE UNLOGGED TABLE interleave.ruling (actor text, id bigint, n int, conflict text, "window" text, duplicate boolean, replaced boolean, throttled boolean);

-- The history of kept signals.
CREATE UNLOGGED TABLE interleave.shelf (
  seq bigint NOT NULL DEFAULT nextval('interleave.clock'),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  actor text NOT NULL DEFAULT current_setting('application_name'),
  o gendurable.kept_signals, n gendurable.kept_signals);
CREATE FUNCTION interleave.note_shelf() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO interleave.shelf (o, n) VALUES (OLD, NEW);
  RETURN NULL;
END $$;
CREATE TRIGGER interleave AFTER INSERT OR UPDATE OR DELETE ON gendurable.kept_signals FOR EACH ROW EXECUTE FUNCTION interleave.note_shelf();
ALTER TABLE gendurable.kept_signals SET (autovacuum_enabled = false);
ALTER TABLE interleave.shelf SET (autovacuum_enabled = false);

-- A move of a row, flat.
CREATE VIEW interleave.move AS
SELECT seq, xid, actor, overtook, (n).id, (o).status AS was, (n).status AS is, o, n,
  (o).locked_by AS worker, (o).claim_token AS token, (o).visit AS visit,
  (n).commit_id IS DISTINCT FROM (o).commit_id AND (n).commit_id IS NOT NULL AS marked -- a restart takes the mark away
FROM interleave.change WHERE (o).id IS NOT NULL AND (n).id IS NOT NULL AND o IS DISTINCT FROM n;

-- The moves that are edits, rewinds and migrations, as those were told.
CREATE VIEW interleave.edit AS
SELECT m.seq, m.id, m.actor, e.verb FROM interleave.move m JOIN interleave.edited e ON e.actor = m.actor AND e.id = m.id AND e.told
WHERE NOT m.marked AND m.was NOT IN ('executing', 'done') AND m.is <> 'executing' AND (m.o).state = e.was AND (m.o).step = e.step AND (m.o).fsm_version = e.version
  AND m.visit = coalesce(e.visit, m.visit) AND (m.n).state = e.new AND (m.n).step = e.to_step AND (m.n).fsm_version = e.to_version
  AND (e.verb <> 'rewind' OR m.is = 'runnable' AND (m.n).visit = m.visit + 1);
CREATE VIEW interleave.rewound AS SELECT seq FROM interleave.edit WHERE verb = 'rewind';

-- The moves that are restarts: of what has failed, of a node that was to be skipped, or had been woken and not begun; what then waits or runs
-- is as it was, but that it waits.
CREATE VIEW interleave.restart AS
SELECT m.* FROM interleave.move m WHERE NOT m.marked AND (m.was = 'failed' AND m.is IN ('runnable', 'awaiting_children')
    OR m.is = 'awaiting_children' AND (m.o).node IS NOT NULL AND m.visit = 0 AND (m.was = 'runnable' OR m.was = 'executing' AND (m.o).join_failed > 0))
  AND EXISTS (SELECT FROM interleave.outcome u WHERE u.actor = m.actor AND u.kind = 'operator restart');
-- How a row had ended when something happened; NULL: it had not.
CREATE FUNCTION interleave.ended_before(bigint, bigint) RETURNS text STABLE LANGUAGE sql AS $$
SELECT CASE WHEN (x.g).joined IS NOT NULL THEN (x.g).status::text END FROM (
  (SELECT c.n AS g, 1 AS nth FROM interleave.change c WHERE (c.n).id = $1 AND c.seq < $2 ORDER BY c.seq DESC LIMIT 1)
  UNION ALL (SELECT c.o, 2 FROM interleave.change c WHERE (c.o).id = $1 AND c.seq > $2 ORDER BY c.seq LIMIT 1)
  UNION ALL (SELECT g, 3 FROM gendurable.gen_durable g WHERE g.id = $1)) x ORDER BY x.nth LIMIT 1 $$;

-- The fences. One outcome per claim and visit; a stale one changes nothing; who is told "applied" or "stale" is told the truth.
CREATE VIEW interleave.broken_fence AS
SELECT 'unfenced outcome' AS name, format('%s of instance %s by %s, which was %s', u.kind, m.id, m.actor, m.was) AS detail
FROM interleave.move m LEFT JOIN interleave.outcome u ON u.mark = (m.n).commit_id AND (u.id = m.id OR u.worker = '')
WHERE m.marked AND NOT coalesce(CASE u.kind
  WHEN 'reap' THEN m.was = 'executing' AND (m.o).lease_expires_at < (m.n).updated_at
  WHEN 'cancel' THEN m.was NOT IN ('done', 'failed')
  WHEN 'rest' THEN m.was NOT IN ('done', 'failed')
  WHEN 'over' THEN m.was = 'executing' AND (m.n).failure = 'cancelled' AND (m.n).visit = m.visit
  WHEN 'skip' THEN m.was = 'runnable' AND m.visit = 0 AND (m.o).node IS NOT NULL AND (m.o).join_failed > 0 AND NOT (m.o).paused
  WHEN 'expire' THEN m.was NOT IN ('done', 'failed', 'executing') AND (m.o).deadline <= (m.n).updated_at
  ELSE m.was = 'executing' AND m.worker = u.worker AND m.token = u.token AND m.visit = u.visit END, false)
UNION ALL
SELECT 'outcome applied twice', format('instance %s token %s visit %s', id, token, visit)
FROM interleave.move WHERE marked AND was = 'executing' GROUP BY id, token, visit HAVING count(*) > 1
UNION ALL
SELECT 'untold', format('instance %s was reported as applied: %s', u.id, u.applied)
FROM interleave.outcome u WHERE u.worker <> ''
  AND u.applied <> EXISTS (SELECT FROM interleave.move m WHERE m.marked AND (m.n).commit_id = u.mark AND m.id = u.id)
UNION ALL
SELECT 'write without its outcome', format('of %s', b.mark)
FROM interleave.booked b WHERE NOT EXISTS (SELECT FROM interleave.move m WHERE m.marked AND (m.n).commit_id = b.mark)
UNION ALL
SELECT 'outcome without its write', format('of %s', w.mark)
FROM interleave.owned w WHERE NOT EXISTS (SELECT FROM interleave.booked b WHERE b.mark = w.mark)
  AND EXISTS (SELECT FROM interleave.move m WHERE m.marked AND (m.n).commit_id = w.mark)
UNION ALL
SELECT 'given up', format('instance %s token %s visit %s was reported as stale', s.id, s.token, s.visit)
FROM interleave.stale s WHERE EXISTS (SELECT FROM gendurable.gen_durable g
  WHERE g.id = s.id AND g.status = 'executing' AND g.locked_by = s.worker AND g.claim_token = s.token AND g.visit = s.visit)
UNION ALL
SELECT 'unfinished', format('instance %s token %s visit %s is neither applied nor stale', u.id, u.token, u.visit)
FROM interleave.outcome u WHERE u.worker <> ''
  AND NOT EXISTS (SELECT FROM interleave.outcome v WHERE v.id = u.id AND v.actor = u.actor AND v.token = u.token AND v.visit = u.visit AND v.applied)
  AND NOT EXISTS (SELECT FROM interleave.stale s WHERE s.id = u.id AND s.actor = u.actor AND s.token = u.token AND s.visit = u.visit);

-- Every move of a row has a cause that the specification knows.
CREATE VIEW interleave.broken_move AS
SELECT 'claim ended by a stranger' AS name, format('instance %s by %s', m.id, m.actor) AS detail
FROM interleave.move m WHERE m.was = 'executing' AND m.is = 'runnable' AND NOT m.marked
  AND NOT coalesce((m.n).crashes = (m.o).crashes + 1 AND (m.n).attempt = (m.o).attempt + 1 AND (m.o).lease_expires_at < (m.n).updated_at, false)
  AND NOT coalesce((m.n).crashes = (m.o).crashes AND (m.n).attempt = (m.o).attempt AND (m.n).visit = m.visit
    AND (m.n).eligible_at = (m.o).eligible_at
    AND EXISTS (SELECT FROM interleave.held h WHERE h.actor = m.actor AND h.worker = m.worker AND h.id = m.id AND h.token = m.token), false)
UNION ALL
SELECT 'lease extended by a stranger', format('instance %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.was = 'executing' AND m.is = 'executing' AND (m.o).lease_expires_at <> (m.n).lease_expires_at
  AND NOT EXISTS (SELECT FROM interleave.held h WHERE h.actor = m.actor AND h.worker = m.worker AND h.id = m.id AND h.token = m.token)
UNION ALL
SELECT 'terminal row changed', format('instance %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.was IN ('done', 'failed') AND m.seq NOT IN (SELECT seq FROM interleave.rewound)
  AND to_jsonb(m.o) - '{losers,graphs,stream_nth,stream_visit}'::text[] <> to_jsonb(m.n) - '{losers,graphs,stream_nth,stream_visit}'::text[]
  AND NOT (m.was = 'failed' AND m.is = 'failed' AND m.seq IN (SELECT seq FROM interleave.edit)) AND NOT (m.was = 'failed' AND m.is = 'runnable' AND EXISTS (SELECT FROM interleave.outcome u WHERE u.actor = m.actor AND u.kind = 'operator retry'))
  AND NOT (m.was = 'failed' AND m.seq IN (SELECT seq FROM interleave.restart))
UNION ALL
SELECT 'retried as another', format('instance %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.was = 'failed' AND m.is = 'runnable' AND m.seq NOT IN (SELECT seq FROM interleave.rewound)
  AND ((m.n).step, (m.n).state, (m.n).visit, (m.n).awaits, (m.n).timed_out, (m.n).round, (m.n).correlation_key, (m.n).correlation_scope)
    IS DISTINCT FROM ((m.o).step, (m.o).state, (m.o).visit, (m.o).awaits, (m.o).timed_out, (m.o).round, (m.o).correlation_key, (m.o).correlation_scope)
UNION ALL
SELECT 'claimed though paused', format('instance %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.was <> 'executing' AND m.is = 'executing' AND (m.o).paused
UNION ALL
SELECT 'strange move', format('instance %s from %s to %s by %s', m.id, m.was, m.is, m.actor)
FROM interleave.move m WHERE m.was <> m.is AND NOT m.marked AND m.seq NOT IN (SELECT seq FROM interleave.restart)
  AND (m.was, m.is) NOT IN (('failed', 'runnable'), ('runnable', 'executing'), ('executing', 'runnable'), ('awaiting_signal', 'runnable'), ('awaiting_children', 'runnable'),
    ('awaiting_signal', 'executing'), ('awaiting_children', 'executing')) -- the last two: by a signal that claims
UNION ALL
SELECT 'live row deleted', format('instance %s by %s', (c.o).id, c.actor)
FROM interleave.change c WHERE (c.n).id IS NULL AND (c.o).status NOT IN ('done', 'failed')
UNION ALL
SELECT 'row out of shape', format('instance %s %s', g.id, g.status)
FROM gendurable.gen_durable g
WHERE (g.status = 'executing') <> (g.locked_by IS NOT NULL) OR (g.status = 'executing') <> (g.lease_expires_at IS NOT NULL)
  OR g.await_deadline IS NOT NULL AND g.status NOT IN ('awaiting_signal', 'awaiting_children');

-- Signals: none lost, none consumed twice, none at the dead; a wake has a cause, and a cause a wake.
CREATE VIEW interleave.broken_signal AS
SELECT 'lost wake' AS name, format('instance %s sleeps with signal %s', g.id, s.id) AS detail
FROM gendurable.gen_durable g JOIN gendurable.signals s ON s.target_id = g.id AND s.name = ANY (g.awaits) AND s.consumed_at IS NULL
WHERE g.status IN ('awaiting_signal', 'awaiting_children')
  AND NOT EXISTS (SELECT FROM interleave.outcome u WHERE u.mark = g.commit_id AND u.id = g.id AND s.id = ANY (u.ignored))
UNION ALL
SELECT 'woken by nothing', format('instance %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.was = 'awaiting_signal' AND m.is IN ('runnable', 'executing') AND m.seq NOT IN (SELECT seq FROM interleave.rewound)
  AND NOT coalesce((m.n).timed_out AND (m.o).await_deadline <= (m.n).eligible_at, false)
  AND NOT EXISTS (SELECT FROM interleave.letter l WHERE l.xid = m.xid AND (l.o).id IS NULL AND (l.n).target_id = m.id AND (l.n).name = ANY ((m.o).awaits))
  AND NOT EXISTS (SELECT FROM interleave.move p JOIN interleave.outcome u ON u.mark = (p.n).commit_id AND u.id = p.id
    WHERE p.xid = m.xid AND p.id = m.id AND p.is = 'awaiting_signal' AND u.kind = 'await')
UNION ALL
SELECT 'signal of the dead', format('signal %s of %s', s.id, g.id)
FROM gendurable.signals s JOIN gendurable.gen_durable g ON g.id = s.target_id WHERE g.status = 'done'
UNION ALL
SELECT 'accepted by the dead', format('signal %s of %s', (l.n).id, (l.n).target_id)
FROM interleave.letter l WHERE (l.o).id IS NULL AND coalesce((SELECT CASE WHEN (c.n).id IS NULL THEN 'failed' ELSE (c.n).status END
  FROM interleave.change c WHERE coalesce((c.n).id, (c.o).id) = (l.n).target_id AND c.seq < l.seq ORDER BY c.seq DESC LIMIT 1) IN ('done', 'failed'), false)
UNION ALL
SELECT 'signal lost', format('signal %s of %s taken by %s', (l.o).id, (l.o).target_id, l.actor)
FROM interleave.letter l WHERE (l.o).id IS NOT NULL AND (l.o).consumed_at IS NULL AND ((l.n).id IS NULL OR (l.n).consumed_at IS NOT NULL)
  AND NOT EXISTS (SELECT FROM interleave.move m JOIN interleave.outcome u ON u.mark = (m.n).commit_id AND u.id = m.id
    WHERE m.xid = l.xid AND m.id = (l.o).target_id AND m.marked AND (u.kind = 'done' AND m.is = 'done'
      OR (u.kind IN ('kept', 'next', 'children', 'rejoin') OR m.is = 'runnable' AND u.unless <> '{}') AND (l.o).id = ANY (u.presented)))
  AND NOT EXISTS (SELECT FROM interleave.change c WHERE c.xid = l.xid AND (c.n).id IS NULL AND (c.o).id = (l.o).target_id)
UNION ALL
SELECT 'signal not consumed', format('signal %s of %s', s.id, s.target_id)
FROM gendurable.signals s JOIN interleave.outcome u ON u.id = s.target_id AND s.id = ANY (u.presented)
JOIN interleave.move m ON m.marked AND m.id = u.id AND (m.n).commit_id = u.mark
WHERE s.consumed_at IS NULL AND (u.kind IN ('kept', 'next', 'children', 'rejoin') OR m.is = 'runnable' AND u.unless <> '{}')
UNION ALL
SELECT 'ended beside a signal', format('instance %s beside signal %s', m.id, w.id)
FROM interleave.move m JOIN interleave.outcome u ON u.mark = (m.n).commit_id AND u.id = m.id AND m.is IN ('done', 'failed')
CROSS JOIN LATERAL (
  SELECT (l.o).id FROM interleave.letter l WHERE l.xid = m.xid AND (l.n).id IS NULL AND (l.o).consumed_at IS NULL
    AND (l.o).target_id = m.id AND (l.o).name = ANY (u.unless)
  UNION ALL SELECT s.id FROM gendurable.signals s WHERE s.consumed_at IS NULL AND s.target_id = m.id AND s.name = ANY (u.unless)) w
WHERE m.marked AND NOT w.id = ANY (u.presented)
UNION ALL
SELECT 'told delivered', format('a signal to %s, of which nothing is known', t.target)
FROM interleave.sent t WHERE t.accepted AND NOT t.duplicate
  AND NOT EXISTS (SELECT FROM interleave.letter l WHERE l.actor = t.actor AND (l.o).id IS NULL AND (l.n).target_id = t.target AND (l.n).name = t.name)
UNION ALL
SELECT 'told duplicate', format('a signal to %s, which has none', t.target)
FROM interleave.sent t WHERE t.accepted AND t.duplicate
  AND NOT EXISTS (SELECT FROM interleave.letter l WHERE t.target IN ((l.o).target_id, (l.n).target_id))
  AND NOT EXISTS (SELECT FROM gendurable.signals s WHERE s.target_id = t.target)
UNION ALL
SELECT 'told undelivered', format('a signal to %s by %s, which was inserted', t.to_id, t.actor)
FROM interleave.sent t JOIN interleave.letter l ON l.actor = t.actor AND (l.o).id IS NULL WHERE (NOT t.accepted OR t.duplicate)
  AND NOT EXISTS (SELECT FROM interleave.shelf x WHERE x.xid = l.xid AND (x.n).id IS NULL AND (x.o).inserted_at = (l.n).inserted_at)
UNION ALL
SELECT 'no target though alive', format('%s %s', t.to_id, t.to_key)
FROM interleave.sent t JOIN gendurable.gen_durable g ON g.id = t.to_id OR g.correlation_guard = t.to_key
WHERE NOT t.accepted AND g.status NOT IN ('done', 'failed')
  AND NOT EXISTS (SELECT FROM interleave.change c WHERE coalesce((c.o).id, (c.n).id) = g.id AND coalesce((c.o).status IN ('done', 'failed'), true))
UNION ALL
SELECT 'duplicate inserted', format('signal %s of %s', (a.n).dedup_key, (a.n).target_id)
FROM interleave.letter a WHERE (a.o).id IS NULL AND EXISTS (SELECT FROM interleave.letter b
  WHERE (b.o).id <> (a.n).id AND (b.o).target_id = (a.n).target_id AND (b.o).dedup_key = (a.n).dedup_key AND b.seq < a.seq
    AND (b.o).consumed_at IS NULL AND (b.n).id IS NULL)
UNION ALL
SELECT 'inbox paired with another claim', format('claim %s of instance %s was not given signal %s', c.token, c.id, (l.n).id)
FROM interleave.claimed c JOIN interleave.move m ON m.id = c.id AND m.is = 'executing' AND (m.n).claim_token = c.token AND m.was <> 'executing'
JOIN interleave.letter l ON (l.o).id IS NULL AND (l.n).target_id = c.id AND l.seq < m.seq AND (l.n).name = ANY ((m.n).awaits)
WHERE NOT (l.n).id = ANY (c.awaited)
  AND NOT EXISTS (SELECT FROM interleave.letter d WHERE (d.o).id = (l.n).id AND d.seq < m.seq);

-- Children: a barrier counts the children of its round that have not joined, each once; nobody is left behind.
-- A parent whose join has a policy wakes for it as well, with the first end that makes it true. A node that was skipped is none.
CREATE FUNCTION interleave.skips(root bigint, its_round bigint) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM gendurable.gen_durable k WHERE k.parent_id = root AND k.parent_round = its_round AND k.failure = 'skipped' $$;
CREATE FUNCTION interleave.policy_wakes(p gendurable.gen_durable) RETURNS boolean LANGUAGE sql AS $$
  SELECT coalesce(p.join_round >= p.round AND p.join_size - p.children_pending - p.join_done - p.join_failed BETWEEN 0 AND interleave.skips(p.id, p.round) AND (p.join_done >= p.wake_done OR p.join_done + p.children_pending < p.wake_done
    OR p.join_failed >= p.wake_failed OR p.join_done + p.join_failed >= p.wake_ended), false) $$;
CREATE VIEW interleave.broken_barrier AS
SELECT 'barrier' AS name, format('parent %s has %s pending', g.id, g.children_pending) AS detail
FROM gendurable.gen_durable g WHERE g.status = 'awaiting_children' AND (g.node IS NULL OR g.visit > 0) AND (g.children_pending = 0 OR g.children_pending <>
  (SELECT count(*) FROM gendurable.gen_durable c WHERE c.parent_id = g.id AND c.parent_round = g.round AND c.joined IS NULL))
UNION ALL
SELECT 'woke early', format('parent %s before child %s', m.id, c.id)
FROM interleave.move m JOIN gendurable.gen_durable c ON c.parent_id = m.id AND c.parent_round = (m.n).round
WHERE m.was = 'awaiting_children' AND m.is IN ('runnable', 'executing') AND m.seq NOT IN (SELECT seq FROM interleave.rewound)
  AND NOT coalesce((m.n).join_round >= (m.n).round AND (interleave.policy_wakes(m.n) OR (m.n).timed_out OR (m.o).awaits IS NOT NULL AND (
    EXISTS (SELECT FROM interleave.letter l WHERE (l.n).target_id = m.id AND (l.n).name = ANY ((m.o).awaits) AND l.seq < m.seq)
    OR EXISTS (SELECT FROM gendurable.signals s WHERE s.target_id = m.id AND s.name = ANY ((m.o).awaits)))), false) AND interleave.ended_before(c.id, m.seq) IS NULL
UNION ALL
SELECT 'overslept', format('parent %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.is = 'awaiting_children' AND interleave.policy_wakes(m.n)
  AND NOT EXISTS (SELECT FROM interleave.move w WHERE w.xid = m.xid AND w.id = m.id AND (w.is = 'runnable' OR w.seq > m.seq)) -- too few were inserted; or a Rejoin, which follows its park
UNION ALL
SELECT 'policy miscounted', format('parent %s counts %s done, %s failed', g.id, g.join_done, g.join_failed)
FROM gendurable.gen_durable g WHERE g.status = 'awaiting_children' AND g.join_round >= g.round
  AND (g.join_size - g.children_pending <> g.join_done + g.join_failed + interleave.skips(g.id, g.round) OR g.join_done <> (SELECT count(*) FROM interleave.move j
    WHERE (j.o).joined IS NULL AND (j.n).joined IS NOT NULL AND j.is = 'done' AND (j.n).parent_id = g.id AND (j.n).parent_round = g.round))
UNION ALL
SELECT 'woke twice', format('parent %s in round %s, visit %s', m.id, (m.n).round, (m.n).visit)
FROM interleave.move m WHERE m.was = 'awaiting_children' AND m.is IN ('runnable', 'executing') AND m.seq NOT IN (SELECT seq FROM interleave.rewound) GROUP BY m.id, (m.n).round, (m.n).visit HAVING count(*) > 1
UNION ALL
SELECT 'joined twice', format('child %s', m.id) FROM interleave.move m WHERE (m.o).joined IS NOT NULL AND (m.n).joined IS DISTINCT FROM (m.o).joined
  AND NOT ((m.n).joined IS NULL AND m.seq IN (SELECT seq FROM interleave.restart))
UNION ALL
SELECT 'not joined', format('child %s', g.id)
FROM gendurable.gen_durable g WHERE g.parent_id IS NOT NULL AND g.status IN ('done', 'failed') AND g.joined IS NULL
UNION ALL
SELECT 'miscounted', format('parent %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.was = 'awaiting_children' AND NOT m.marked AND m.seq NOT IN (SELECT seq FROM interleave.rewound)
  AND ((m.o).node IS NULL OR (m.o).visit > 0)
  AND NOT EXISTS (SELECT FROM interleave.change a WHERE a.xid = m.xid AND (a.o).id IS NULL AND (a.n).parent_id = m.id AND (a.n).node IS NOT NULL) -- see barrier
  AND NOT EXISTS (SELECT FROM interleave.move p WHERE p.xid = m.xid AND p.id = m.id AND p.marked)
  -- What forgets a rest, in the transaction that cancels it, counts nothing.
  AND NOT (m.is = m.was AND (m.o).losers IS DISTINCT FROM (m.n).losers AND (m.n).children_pending = (m.o).children_pending
    AND EXISTS (SELECT FROM interleave.move j WHERE j.xid = m.xid AND j.id = m.id AND j.seq > m.seq AND j.was = 'awaiting_children'))
  AND (m.o).children_pending - (m.n).children_pending <> (SELECT count((j.n).joined) - count((j.o).joined) FROM interleave.move j WHERE j.xid = m.xid
    AND (j.o).joined IS NULL <> ((j.n).joined IS NULL) AND (j.n).parent_id = m.id AND (j.n).parent_round = (m.o).round)
UNION ALL -- nodes: an edge counts once, with the end of its origin; a node goes on when all have ended, or one edge is not met
SELECT 'node miscounted', format('node %s waits for %s', g.id, g.children_pending)
FROM gendurable.gen_durable g WHERE g.status = 'awaiting_children' AND g.node IS NOT NULL AND g.visit = 0 AND (g.children_pending = 0
  OR g.children_pending <> (SELECT count(*) FILTER (WHERE f.joined IS NULL AND e.needs < 3)
      + coalesce((count(*) FILTER (WHERE f.status = 'done' AND e.needs = 3) < g.wake_done)::int, 0)
    FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id WHERE e.to_id = g.id))
UNION ALL
SELECT 'node overslept', format('node %s waits for what is not met', g.id)
FROM gendurable.gen_durable g JOIN gendurable.edges e ON e.to_id = g.id JOIN gendurable.gen_durable f ON f.id = e.from_id
WHERE g.status = 'awaiting_children' AND g.node IS NOT NULL AND g.visit = 0 AND f.joined IS NOT NULL
  AND e.needs < 3 AND NOT (e.needs = 1 OR (e.needs = 0) = (f.status = 'done'))
UNION ALL
SELECT 'node overslept', format('node %s waits for a quorum that cannot be', g.id)
FROM gendurable.gen_durable g WHERE g.status = 'awaiting_children' AND g.node IS NOT NULL AND g.visit = 0 AND g.wake_done >
  (SELECT count(*) FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
    WHERE e.to_id = g.id AND e.needs = 3 AND (f.joined IS NULL OR f.status = 'done'))
UNION ALL
SELECT 'node woke early', format('node %s before its quorum', m.id)
FROM interleave.move m
WHERE m.was = 'awaiting_children' AND m.is = 'runnable' AND (m.o).node IS NOT NULL AND (m.o).visit = 0 AND (m.o).wake_done >
    (SELECT count(*) FROM gendurable.edges e JOIN interleave.move j ON j.id = e.from_id WHERE e.to_id = m.id AND e.needs = 3 AND j.seq < m.seq
      AND (j.o).joined IS NULL AND (j.n).joined IS NOT NULL AND j.is = 'done')
  AND (m.o).wake_done <=
    (SELECT count(*) FROM gendurable.edges e WHERE e.to_id = m.id AND e.needs = 3 AND NOT EXISTS (SELECT FROM interleave.move j
      WHERE j.id = e.from_id AND j.seq < m.seq AND (j.o).joined IS NULL AND (j.n).joined IS NOT NULL AND j.is = 'failed'))
  AND NOT EXISTS (SELECT FROM gendurable.edges x JOIN interleave.move j ON j.id = x.from_id WHERE x.to_id = m.id AND j.seq < m.seq
    AND (j.o).joined IS NULL AND (j.n).joined IS NOT NULL AND x.needs < 3 AND NOT (x.needs = 1 OR (x.needs = 0) = (j.is = 'done')))
UNION ALL
SELECT 'node woke early', format('node %s before node %s', m.id, e.from_id)
FROM interleave.move m JOIN gendurable.edges e ON e.to_id = m.id AND e.needs < 3
WHERE m.was = 'awaiting_children' AND m.is = 'runnable' AND (m.o).node IS NOT NULL AND (m.o).visit = 0
  AND interleave.ended_before(e.from_id, m.seq) IS NULL
  AND NOT EXISTS (SELECT FROM gendurable.edges x WHERE x.to_id = m.id AND x.needs < 3
    AND NOT (x.needs = 1 OR (x.needs = 0) = (interleave.ended_before(x.from_id, m.seq) = 'done')))
UNION ALL
SELECT 'node begun early', format('node %s before node %s', g.id, e.from_id)
FROM gendurable.gen_durable g JOIN gendurable.edges e ON e.to_id = g.id AND e.needs < 3 JOIN gendurable.gen_durable f ON f.id = e.from_id
WHERE g.status = 'runnable' AND g.node IS NOT NULL AND g.visit = 0 AND g.attempt = 0 AND g.crashes = 0 AND f.joined IS NULL AND coalesce(g.join_failed, 0) = 0
UNION ALL
SELECT 'skipped for nothing', format('node %s', g.id)
FROM gendurable.gen_durable g JOIN gendurable.gen_durable p ON p.id = g.parent_id AND p.status = 'awaiting_children' AND p.round = g.parent_round
WHERE (g.failure = 'skipped' OR g.node IS NOT NULL AND g.visit = 0 AND g.join_failed > 0 AND g.finished_at IS NULL)
  AND NOT EXISTS (SELECT FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
    WHERE e.to_id = g.id AND e.needs < 3 AND f.joined IS NOT NULL AND NOT (e.needs = 1 OR (e.needs = 0) = (f.status = 'done')))
  AND NOT coalesce(g.wake_done > (SELECT count(*) FROM gendurable.edges e JOIN gendurable.gen_durable f ON f.id = e.from_id
    WHERE e.to_id = g.id AND e.needs = 3 AND (f.joined IS NULL OR f.status = 'done')), false)
UNION ALL
SELECT 'orphan child', format('%s of %s', (c.n).id, (c.n).parent_id)
FROM interleave.change c WHERE (c.o).id IS NULL AND (c.n).parent_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM interleave.move m JOIN interleave.outcome u ON u.mark = (m.n).commit_id AND u.id = m.id
    WHERE m.xid = c.xid AND m.id = (c.n).parent_id AND m.marked AND u.kind = 'children' AND (m.n).round = (c.n).parent_round)
  AND NOT EXISTS (SELECT FROM interleave.move m WHERE m.xid = c.xid AND m.marked AND (c.n).node IS NOT NULL AND (m.n).node IS NOT NULL
    AND (m.n).parent_id = (c.n).parent_id AND (m.n).parent_round = (c.n).parent_round) -- a node of the same graph has added it
UNION ALL
SELECT 'children missing', format('parent %s', m.id)
FROM interleave.move m JOIN interleave.outcome u ON u.mark = (m.n).commit_id AND u.id = m.id AND u.kind = 'children'
WHERE m.marked AND u.children <> (SELECT count(*) FROM interleave.change c WHERE c.xid = m.xid AND (c.o).id IS NULL AND (c.n).parent_id = m.id)
  + coalesce((SELECT jsonb_array_length((d.n).dropped) FROM interleave.move d WHERE d.xid = m.xid AND d.id = m.id AND (d.n).dropped IS NOT NULL
      ORDER BY d.seq DESC LIMIT 1), 0)
UNION ALL
SELECT 'descendant left', format('instance %s of family %s is %s', d.id, u.id, d.status)
FROM interleave.outcome u CROSS JOIN LATERAL (
  WITH RECURSIVE f(id, status) AS (
    SELECT g.id, g.status FROM gendurable.gen_durable g WHERE g.id = u.id
    UNION SELECT g.id, g.status FROM f JOIN gendurable.gen_durable g ON g.parent_id = f.id)
  SELECT f.id, f.status FROM f) d
WHERE u.kind = 'cancel family' AND d.status NOT IN ('done', 'failed') AND NOT EXISTS (SELECT FROM interleave.outcome v WHERE v.kind IN ('operator retry', 'operator restart'))
UNION ALL
SELECT 'cancelled before its child', format('parent %s of %s', p.id, c.id)
FROM interleave.move p JOIN interleave.move c ON c.xid = p.xid AND (c.n).parent_id = p.id AND c.seq > p.seq
WHERE p.was NOT IN ('done', 'failed') AND (p.n).failure = 'cancelled' AND c.was NOT IN ('done', 'failed') AND (c.n).failure = 'cancelled'
UNION ALL
SELECT 'result lost', format('child %s of %s', (c.o).id, p.id)
FROM interleave.change c JOIN gendurable.gen_durable p ON p.id = (c.o).parent_id AND p.round = (c.o).parent_round AND p.finished_at IS NULL
WHERE (c.n).id IS NULL AND NOT EXISTS (SELECT FROM interleave.change x WHERE (x.o).id = p.id AND (x.o).finished_at IS NOT NULL)
UNION ALL
SELECT 'told ended', format('instance %s to %s', w.id, w.actor)
FROM interleave.waited w JOIN gendurable.gen_durable g ON g.id = w.id AND g.finished_at IS NULL
WHERE NOT EXISTS (SELECT FROM interleave.change x WHERE (x.o).id = g.id AND (x.o).finished_at IS NOT NULL)
UNION ALL
-- The rest of a round: cancelled only when its parent does not wait for it any more, and nobody is left behind.
SELECT 'cancelled though waited for', format('child %s of %s', m.id, (m.n).parent_id)
FROM interleave.move m JOIN interleave.outcome u ON u.mark = (m.n).commit_id AND u.kind = 'rest'
CROSS JOIN LATERAL (SELECT x.p FROM (
  (SELECT c.n AS p, 1 AS nth FROM interleave.change c WHERE (c.n).id = (m.n).parent_id AND c.seq < m.seq ORDER BY c.seq DESC LIMIT 1)
  UNION ALL (SELECT c.o, 2 FROM interleave.change c WHERE (c.o).id = (m.n).parent_id AND c.seq > m.seq ORDER BY c.seq LIMIT 1)
  UNION ALL (SELECT g, 3 FROM gendurable.gen_durable g WHERE g.id = (m.n).parent_id)) x ORDER BY x.nth LIMIT 1) w
WHERE m.marked AND (w.p).status = 'awaiting_children' AND (w.p).round = (m.n).parent_round AND NOT coalesce(-(w.p).round = ANY ((w.p).losers), false)
UNION ALL
SELECT 'cancelled though its root lives', format('node %s of %s', m.id, (m.n).parent_id)
FROM interleave.move m JOIN interleave.outcome u ON u.mark = (m.n).commit_id AND u.kind = 'rest'
CROSS JOIN LATERAL (SELECT x.p FROM (
  (SELECT c.n AS p, 1 AS nth FROM interleave.change c WHERE (c.n).id = (m.n).parent_id AND c.seq < m.seq ORDER BY c.seq DESC LIMIT 1)
  UNION ALL (SELECT c.o, 2 FROM interleave.change c WHERE (c.o).id = (m.n).parent_id AND c.seq > m.seq ORDER BY c.seq LIMIT 1)
  UNION ALL (SELECT g, 3 FROM gendurable.gen_durable g WHERE g.id = (m.n).parent_id)) x ORDER BY x.nth LIMIT 1) w
WHERE m.marked AND (m.n).node IS NOT NULL AND (w.p).finished_at IS NULL
  AND NOT coalesce((m.n).parent_round = ANY ((w.p).losers) OR -(m.n).parent_round = ANY ((w.p).losers), false)
UNION ALL
SELECT 'outlives its root', format('node %s of %s is %s', k.id, p.id, k.status)
FROM gendurable.gen_durable k JOIN gendurable.gen_durable p ON p.id = k.parent_id
WHERE k.node IS NOT NULL AND k.finished_at IS NULL AND p.finished_at IS NOT NULL AND EXISTS (SELECT FROM interleave.outcome u WHERE u.kind = 'rest')
UNION ALL
SELECT 'loser left', format('child %s of %s is %s', k.id, p.id, k.status)
FROM gendurable.gen_durable k JOIN gendurable.gen_durable p ON p.id = k.parent_id
WHERE k.status NOT IN ('done', 'failed') AND NOT (p.status = 'awaiting_children' AND p.round = k.parent_round AND NOT coalesce(-p.round = ANY (p.losers), false))
  AND EXISTS (SELECT FROM interleave.outcome u WHERE u.kind = 'rest') AND NOT EXISTS (SELECT FROM interleave.outcome v WHERE v.kind = 'operator retry')
  AND NOT EXISTS (SELECT FROM interleave.outcome v WHERE v.kind = 'operator restart')
  AND (k.parent_round = ANY (p.losers) OR -k.parent_round = ANY (p.losers) OR EXISTS (SELECT FROM interleave.move c WHERE c.id = p.id
    AND (k.parent_round = ANY ((c.o).losers) OR (c.n).commit_id IN (SELECT u.mark FROM interleave.outcome u WHERE u.kind = 'rest'))))
UNION ALL
SELECT 'round not forgotten', format('parent %s has %s, and graphs %s', p.id, p.losers, p.graphs)
FROM gendurable.gen_durable p WHERE (p.losers IS NOT NULL AND (p.status <> 'awaiting_children' OR p.losers[1] <> p.round)
    OR p.graphs IS NOT NULL AND p.finished_at IS NOT NULL)
  AND EXISTS (SELECT FROM interleave.outcome u WHERE u.kind = 'rest')
UNION ALL
SELECT 'child lost its parent', format('%s', g.id) FROM gendurable.gen_durable g WHERE g.depth > 0 AND g.parent_id IS NULL;

-- Additions to graphs: what an outcome adds is there if it was applied, and its node is cancelled if the graph is over; no node waits for itself.
-- An outcome's nodes (no origin), and its edges. One that leads to a node which does not wait has no effect.
CREATE UNLOGGED TABLE interleave.added (mark uuid, root bigint, origin text, node text);
-- A row as it was when something happened.
CREATE FUNCTION interleave.row_before(bigint, bigint) RETURNS gendurable.gen_durable STABLE LANGUAGE sql AS $$
SELECT (x.g).* FROM (
  (SELECT c.n AS g, 1 AS nth FROM interleave.change c WHERE (c.n).id = $1 AND c.seq < $2 ORDER BY c.seq DESC LIMIT 1)
  UNION ALL (SELECT c.o, 2 FROM interleave.change c WHERE (c.o).id = $1 AND c.seq > $2 ORDER BY c.seq LIMIT 1)
  UNION ALL (SELECT g, 3 FROM gendurable.gen_durable g WHERE g.id = $1)) x ORDER BY x.nth LIMIT 1 $$;
CREATE VIEW interleave.broken_addition AS
SELECT 'addition lost' AS name, format('node %s of %s', a.node, a.root) AS detail
FROM interleave.added a JOIN interleave.move m ON m.marked AND (m.n).commit_id = a.mark
WHERE a.origin IS NULL AND (interleave.row_before(a.root, m.seq)).finished_at IS NULL
  AND NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.parent_id = a.root AND g.node = a.node)
UNION ALL
SELECT 'added edge lost', format('from %s to %s', f.node, t.node)
FROM interleave.added a JOIN interleave.move m ON m.marked AND (m.n).commit_id = a.mark
JOIN gendurable.gen_durable f ON f.parent_id = a.root AND f.node = a.origin JOIN gendurable.gen_durable t ON t.parent_id = a.root AND t.node = a.node
CROSS JOIN LATERAL interleave.row_before(t.id, m.seq) w
WHERE (interleave.row_before(a.root, m.seq)).finished_at IS NULL AND w.status <> 'failed' AND NOT (w.visit = 0 AND coalesce(w.join_failed > 0, false))
  AND NOT EXISTS (SELECT FROM gendurable.edges e WHERE e.from_id = f.id AND e.to_id = t.id)
UNION ALL
SELECT 'added to what is over', format('node %s of %s', (c.n).node, (c.n).parent_id)
FROM interleave.change c WHERE (c.o).id IS NULL AND (c.n).node IS NOT NULL AND (interleave.row_before((c.n).parent_id, c.seq)).finished_at IS NOT NULL
UNION ALL
SELECT 'decided for what is over', format('node %s of %s', m.id, a.root)
FROM interleave.added a JOIN interleave.move m ON m.marked AND (m.n).commit_id = a.mark
WHERE a.origin IS NULL AND (interleave.row_before(a.root, m.seq)).finished_at IS NOT NULL
UNION ALL
SELECT 'cancelled for what lives', format('node %s of %s', m.id, (m.n).parent_id)
FROM interleave.outcome u JOIN interleave.move m ON m.marked AND (m.n).commit_id = u.mark
WHERE u.kind = 'over' AND (interleave.row_before((m.n).parent_id, m.seq)).finished_at IS NULL
UNION ALL
SELECT 'waits for itself', format('node %s', x.id) FROM (
  WITH RECURSIVE r(id, behind) AS (
    SELECT e.from_id, e.to_id FROM gendurable.edges e UNION SELECT r.id, e.to_id FROM r JOIN gendurable.edges e ON e.from_id = r.behind)
  SELECT r.id FROM r WHERE r.id = r.behind) x;

-- Keys: one executes at a time, the head first, and none stands still. Claims are what they said.
CREATE VIEW interleave.broken_key AS
SELECT 'key stands still' AS name, format('%s in %s: %s waits', h.partition_key, h.queue, h.id) AS detail
FROM (SELECT DISTINCT ON (partition_key, queue) * FROM gendurable.gen_durable
  WHERE partition_key IS NOT NULL AND status = 'runnable' AND NOT paused AND eligible_at <= clock_timestamp()
  ORDER BY partition_key, queue, priority, eligible_at, id) h
WHERE h.pick_lane = 1
  AND NOT EXISTS (SELECT FROM gendurable.gen_durable b WHERE b.partition_key = h.partition_key AND b.status = 'executing')
UNION ALL
SELECT 'overtook', format('%s went before %s', m.id, m.overtook) FROM interleave.move m WHERE m.overtook IS NOT NULL
UNION ALL
SELECT 'two of a key', g.partition_key FROM gendurable.gen_durable g WHERE g.status = 'executing' AND g.partition_key IS NOT NULL
GROUP BY g.partition_key HAVING count(*) > 1
UNION ALL
SELECT 'two guards', g.correlation_guard FROM gendurable.gen_durable g WHERE g.correlation_guard IS NOT NULL GROUP BY g.correlation_guard HAVING count(*) > 1
UNION ALL
SELECT 'claim untold', format('instance %s token %s', m.id, (m.n).claim_token)
FROM interleave.move m WHERE m.was <> 'executing' AND m.is = 'executing'
  AND NOT EXISTS (SELECT FROM interleave.claimed c WHERE c.actor = m.actor AND c.id = m.id AND c.token = (m.n).claim_token AND c.worker = (m.n).locked_by)
  AND NOT EXISTS (SELECT FROM interleave.move e -- cancelled between the claim and the look at it
    WHERE e.id = m.id AND e.seq > m.seq AND (e.n).failure = 'cancelled' AND (e.o).claim_token = (m.n).claim_token)
UNION ALL
SELECT 'claim untold', format('instance %s token %s, inserted as claimed', (c.n).id, (c.n).claim_token)
FROM interleave.change c WHERE (c.o).id IS NULL AND (c.n).status = 'executing'
  AND EXISTS (SELECT FROM interleave.inserted i WHERE i.actor = c.actor AND i.id = (c.n).id)
  AND NOT EXISTS (SELECT FROM interleave.claimed d WHERE d.actor = c.actor AND d.id = (c.n).id AND d.token = (c.n).claim_token AND d.worker = (c.n).locked_by)
UNION ALL
SELECT 'claim that is none', format('instance %s token %s', c.id, c.token)
FROM interleave.claimed c WHERE NOT EXISTS (SELECT FROM interleave.move m WHERE m.id = c.id AND m.is = 'executing' AND (m.n).claim_token = c.token)
  AND NOT EXISTS (SELECT FROM interleave.change x WHERE (x.o).id IS NULL AND (x.n).id = c.id AND (x.n).status = 'executing' AND (x.n).claim_token = c.token)
UNION ALL
SELECT 'token fell', format('instance %s', m.id) FROM interleave.move m WHERE (m.n).claim_token < (m.o).claim_token
UNION ALL
SELECT 'insert untold', format('instance %s', i.id)
FROM interleave.inserted i WHERE NOT i.duplicate AND NOT EXISTS (SELECT FROM interleave.change c WHERE c.actor = i.actor AND (c.o).id IS NULL AND (c.n).id = i.id)
UNION ALL
SELECT 'duplicate of nobody', format('key %s', i.key)
FROM interleave.inserted i WHERE i.duplicate
  AND NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.id = i.id AND g.correlation_key = i.key)
  AND NOT EXISTS (SELECT FROM interleave.change c WHERE (c.o).id = i.id AND (c.o).correlation_guard = i.key);

-- Lost claims: each is noted by whoever takes it away, the next of its key is told of it, and only who knows that its step has ended
-- deletes it. A later claim of a key has a larger fencing token.
CREATE VIEW interleave.broken_lost AS
SELECT 'lost claim not noted' AS name, format('instance %s token %s by %s', m.id, m.token, m.actor) AS detail
FROM interleave.move m WHERE m.was = 'executing' AND m.is <> 'executing' AND (m.o).partition_key IS NOT NULL
  AND ((m.n).crashes > (m.o).crashes OR (m.n).failure = 'cancelled')
  AND NOT EXISTS (SELECT FROM interleave.taken x WHERE x.xid = m.xid AND (x.n).worker = m.worker AND (x.n).claim_token = m.token
    AND (x.n).partition_key = (m.o).partition_key)
UNION ALL
SELECT 'noted though not lost', format('token %s by %s', (x.n).claim_token, x.actor)
FROM interleave.taken x WHERE (x.o).id IS NULL AND NOT EXISTS (SELECT FROM interleave.move m WHERE m.xid = x.xid AND m.was = 'executing'
  AND m.is <> 'executing' AND m.worker = (x.n).worker AND m.token = (x.n).claim_token AND (m.o).partition_key = (x.n).partition_key)
UNION ALL
SELECT 'not told who lingers', format('claim %s of instance %s beside claim %s', c.token, c.id, l.claim_token)
FROM interleave.claimed c JOIN interleave.move m ON m.id = c.id AND m.is = 'executing' AND (m.n).claim_token = c.token AND m.was = 'runnable'
JOIN gendurable.lost_claims l ON l.partition_key = (m.n).partition_key AND l.worker <> c.worker
WHERE NOT c.lingers AND NOT EXISTS (SELECT FROM interleave.taken x WHERE (x.n).id = l.id AND x.seq > m.seq)
UNION ALL
SELECT 'begun beside a lost claim', format('worker %s under %s beside claim %s', a.worker, a.key, l.claim_token)
FROM interleave.asked a JOIN gendurable.lost_claims l ON l.partition_key = a.key AND l.worker <> a.worker
WHERE NOT a.lingers AND NOT EXISTS (SELECT FROM interleave.taken x WHERE (x.n).id = l.id)
UNION ALL
SELECT 'lost claim forgotten', format('claim %s of %s by %s', (x.o).claim_token, (x.o).worker, x.actor)
FROM interleave.taken x JOIN interleave.alive v ON v.worker = (x.o).worker WHERE (x.n).id IS NULL
  AND NOT EXISTS (SELECT FROM interleave.landed d WHERE d.worker = (x.o).worker AND d.token = (x.o).claim_token)
UNION ALL
SELECT 'lost claim kept', format('claim %s of %s', l.claim_token, l.worker)
FROM gendurable.lost_claims l WHERE NOT EXISTS (SELECT FROM interleave.taken x WHERE (x.n).id = l.id)
  AND (EXISTS (SELECT FROM interleave.landed d WHERE d.worker = l.worker AND d.token = l.claim_token)
    OR EXISTS (SELECT FROM interleave.asked a WHERE a.key = l.partition_key AND a.worker <> l.worker)
      AND NOT EXISTS (SELECT FROM interleave.alive v WHERE v.worker = l.worker))
UNION ALL
SELECT 'fencing token fell', format('key %s: %s after %s', (m.n).partition_key, c.fencing, b.fencing)
FROM interleave.claimed b JOIN interleave.move p ON p.id = b.id AND p.is = 'executing' AND (p.n).claim_token = b.token AND p.was = 'runnable'
JOIN interleave.move m ON (m.n).partition_key = (p.n).partition_key AND m.was = 'runnable' AND m.is = 'executing' AND m.seq > p.seq
JOIN interleave.claimed c ON c.id = m.id AND c.token = (m.n).claim_token AND c.actor = m.actor
WHERE b.actor = p.actor AND c.fencing <= b.fencing;

-- Gates: the rule in force is the last one that was stored before. A change of a rule and a claim under it exclude each other.
CREATE VIEW interleave.rule AS
SELECT v.since, v.until, (v.r).* FROM (
  SELECT n AS r, seq AS since, lead(seq, 1, 9223372036854775807) OVER (PARTITION BY coalesce((n).name, (o).name) ORDER BY seq) AS until FROM interleave.ruled
  UNION ALL
  SELECT o, 0, seq FROM (SELECT *, row_number() OVER (PARTITION BY coalesce((n).name, (o).name) ORDER BY seq) AS k FROM interleave.ruled) f WHERE k = 1
  UNION ALL
  SELECT r, 0, 9223372036854775807 FROM gendurable.gates r WHERE NOT EXISTS (SELECT FROM interleave.ruled x WHERE coalesce((x.n).name, (x.o).name) = r.name)) v
WHERE (v.r).name IS NOT NULL;

-- Places, of all kinds: who takes one, and who no longer has one. The key of a seat is its queue.
CREATE VIEW interleave.holding AS
SELECT c.seq, (c.n).id, k.kind, k.key, k.delta, k.delta > 0 AND NOT coalesce(k.had, false) AS takes
FROM interleave.change c CROSS JOIN LATERAL (
  SELECT text 'place', (c.o).gate, -1, NULL WHERE (c.o).place IS NOT NULL
  UNION ALL SELECT text 'place', (c.n).gate, 1, (c.o).place IS NOT NULL AND (c.o).gate = (c.n).gate WHERE (c.n).place IS NOT NULL
  UNION ALL SELECT text 'run', (c.o).run_gate, -1, NULL WHERE (c.o).run_place IS NOT NULL AND (c.o).finished_at IS NULL
  UNION ALL SELECT text 'run', (c.n).run_gate, 1, (c.o).run_place IS NOT NULL AND (c.o).run_gate = (c.n).run_gate
    WHERE (c.n).run_place IS NOT NULL AND (c.n).finished_at IS NULL
  UNION ALL SELECT text 'seat', (c.o).queue, -1, NULL WHERE (c.o).seat IS NOT NULL
  UNION ALL SELECT text 'seat', (c.n).queue, 1, (c.o).seat IS NOT NULL WHERE (c.n).seat IS NOT NULL) AS k(kind, key, delta, had);
CREATE VIEW interleave.holds_now AS
SELECT text 'place' AS kind, gate AS key FROM gendurable.gen_durable WHERE place IS NOT NULL
UNION ALL SELECT text 'run', run_gate FROM gendurable.gen_durable WHERE run_place IS NOT NULL AND finished_at IS NULL
UNION ALL SELECT text 'seat', queue FROM gendurable.gen_durable WHERE seat IS NOT NULL;

-- Claims that a rule of each kind concerns.
CREATE VIEW interleave.passage AS
SELECT m.seq, m.id, m.actor, m.n, r AS rule, r.name, r.since,
  CASE WHEN r.run THEN 'run' WHEN r.queue IS NOT NULL AND r.machine IS NULL AND r.step IS NULL AND r.label IS NULL THEN 'seat' ELSE 'place' END AS kind,
  r.places, r.total, r.rate, r.rate_burst, r.total_rate, r.total_rate_burst, r.name || coalesce('/' || ((m.n).labels ->> r.label), '') AS key
FROM interleave.move m JOIN interleave.rule r ON m.seq > r.since AND m.seq < r.until
  AND coalesce(r.queue = (m.n).queue, true) AND coalesce(r.machine = (m.n).fsm, true) AND coalesce(r.step = (m.n).step, true)
  AND (r.label IS NULL OR (m.n).labels ->> r.label IS NOT NULL)
WHERE m.was = 'runnable' AND m.is = 'executing';

-- Nobody takes more places than there are, or begins more often than a rate says; and nobody is in line that may begin.
CREATE VIEW interleave.broken_gate AS
SELECT 'gate exceeded' AS name, format('%s %s has %s of %s places taken', t.kind, t.key, t.n, r.places) AS detail
FROM (SELECT h.*, (SELECT count(*) FROM interleave.holds_now x WHERE x.kind = h.kind AND x.key = h.key)
    - (SELECT coalesce(sum(y.delta), 0) FROM interleave.holding y WHERE y.kind = h.kind AND y.key = h.key AND y.seq > h.seq) AS n
  FROM interleave.holding h WHERE h.takes) t
JOIN interleave.rule r ON t.seq > r.since AND t.seq < r.until
  AND CASE WHEN t.kind = 'seat' THEN r.queue = t.key AND r.label IS NULL ELSE r.name = split_part(t.key, '/', 1) END
LEFT JOIN gendurable.gate_keys own ON own.key = t.key
WHERE t.n > greatest(r.places, own.places) -- a claim beside the one who grants them goes by either
UNION ALL
SELECT 'total exceeded', format('%s has %s of %s', t.name, t.n, r.total)
FROM (SELECT h.seq, split_part(h.key, '/', 1) AS name, (SELECT count(*) FROM interleave.holds_now x WHERE x.kind = 'place' AND split_part(x.key, '/', 1) = split_part(h.key, '/', 1))
    - (SELECT coalesce(sum(y.delta), 0) FROM interleave.holding y WHERE y.kind = 'place' AND split_part(y.key, '/', 1) = split_part(h.key, '/', 1) AND y.seq > h.seq) AS n
  FROM interleave.holding h WHERE h.takes AND h.kind = 'place') t
JOIN interleave.rule r ON r.name = t.name AND t.seq > r.since AND t.seq < r.until
WHERE t.n > r.total
UNION ALL
SELECT 'rate exceeded', format('claim %s at %s, which owes %s, of %s', c.nth, c.key, c.owed, c.rate_burst)
FROM (SELECT p.*, row_number() OVER (PARTITION BY p.key ORDER BY p.seq) AS nth, coalesce((SELECT w.debt FROM interleave.owed w WHERE w.key = p.key), 0) AS owed
  FROM interleave.passage p WHERE p.rate IS NOT NULL) c
WHERE c.nth + c.owed > c.rate_burst
UNION ALL
SELECT 'rate exceeded', format('claim %s of all of %s, of %s', c.nth, c.name, c.total_rate_burst)
FROM (SELECT p.*, row_number() OVER (PARTITION BY p.name ORDER BY p.seq) AS nth FROM interleave.passage p WHERE p.total_rate IS NOT NULL) c
WHERE c.nth > c.total_rate_burst
UNION ALL
SELECT 'rate not paid', format('%s owes %s after %s claims', c.key, k.debt, c.n)
FROM (SELECT p.key, count(*) + coalesce(max(w.debt), 0) AS n FROM interleave.passage p LEFT JOIN interleave.owed w ON w.key = p.key
  WHERE p.rate IS NOT NULL GROUP BY p.key) c
LEFT JOIN gendurable.gate_keys k ON k.key = c.key WHERE coalesce(k.debt, 0) < c.n - 0.1
UNION ALL
SELECT 'throttled for nothing', format('%s goes at %s', t.key, k.pace)
FROM interleave.throttled t LEFT JOIN gendurable.gate_keys k ON k.key = t.key WHERE coalesce(k.pace, 1) > 0.6
UNION ALL
SELECT 'closed in word only', c.key
FROM interleave.closed c LEFT JOIN gendurable.gate_keys k ON k.key = c.key WHERE NOT coalesce(k.closed_until > clock_timestamp(), false)
UNION ALL
SELECT 'weighed in word only', c.key
FROM interleave.weighed c LEFT JOIN gendurable.gate_keys k ON k.key = c.key WHERE coalesce(k.weight, 1) = 1
UNION ALL
SELECT 'granted in word only', c.key
FROM interleave.granted c LEFT JOIN gendurable.gate_keys k ON k.key = c.key WHERE k.places IS DISTINCT FROM c.places
UNION ALL
SELECT 'in line elsewhere', format('instance %s at %s, not %s', g.id, g.gate, k.key)
FROM gendurable.gen_durable g LEFT JOIN LATERAL (
  SELECT r.name || coalesce('/' || (g.labels ->> r.label), '') AS key FROM gendurable.gates r
  WHERE NOT r.run AND coalesce(r.machine, r.step, r.label) IS NOT NULL AND coalesce(r.queue = g.queue, true) AND coalesce(r.machine = g.fsm, true)
    AND coalesce(r.step = g.step, true) AND (r.label IS NULL OR g.labels ->> r.label IS NOT NULL)
  ORDER BY r.step IS NULL, r.machine IS NULL, r.label IS NULL, r.queue IS NULL, r.name LIMIT 1) k ON true
WHERE g.status = 'runnable' AND g.pick_lane = 3 AND g.gate IS DISTINCT FROM k.key AND EXISTS (SELECT FROM interleave.refiled)
UNION ALL
SELECT 'claim without a place', format('instance %s by %s at %s', p.id, p.actor, p.key)
FROM interleave.passage p
WHERE CASE p.kind WHEN 'run' THEN (p.n).run_gate IS DISTINCT FROM p.key OR (p.n).run_place IS NULL AND p.places IS NOT NULL
  WHEN 'seat' THEN (p.n).seat IS NULL AND p.places IS NOT NULL
  ELSE (p.n).gate IS DISTINCT FROM p.key OR (p.n).place IS NULL AND coalesce(p.places, p.total) IS NOT NULL END
UNION ALL
SELECT 'place kept', format('instance %s is %s', g.id, g.status)
FROM gendurable.gen_durable g WHERE (g.place IS NOT NULL OR g.seat IS NOT NULL) AND g.status <> 'executing'
UNION ALL
SELECT 'line stands still', format('instance %s at %s', g.id, g.gate)
FROM gendurable.gen_durable g LEFT JOIN gendurable.gates r ON r.name = split_part(g.gate, '/', 1)
LEFT JOIN gendurable.gates q ON q.queue = g.queue AND q.label IS NULL AND q.machine IS NULL
LEFT JOIN gendurable.gate_keys k ON k.key = g.gate LEFT JOIN gendurable.gate_keys n ON n.key = r.name LEFT JOIN gendurable.gate_keys w ON w.key = q.name
WHERE g.status = 'runnable' AND NOT g.paused AND g.eligible_at <= clock_timestamp() AND (g.pick_lane = 3 OR g.pick_lane = 0 AND q.name IS NOT NULL)
  AND NOT coalesce(k.closed_until > clock_timestamp(), false) AND NOT coalesce(n.closed_until > clock_timestamp(), false)
  AND (SELECT count(*) FROM interleave.holds_now x WHERE x.kind = CASE WHEN r.run THEN 'run' ELSE 'place' END AND x.key = g.gate) < coalesce(k.places, r.places, 1000)
  AND (SELECT count(*) FROM interleave.holds_now x WHERE x.kind = 'place' AND split_part(x.key, '/', 1) = r.name) < coalesce(r.total, 1000)
  AND (SELECT count(*) FROM interleave.holds_now x WHERE x.kind = 'seat' AND x.key = g.queue) < coalesce(q.places, 1000)
  AND coalesce(coalesce(k.debt, 0) + 1 <= r.rate_burst, true) AND coalesce(coalesce(n.debt, 0) + 1 <= r.total_rate_burst, true)
  AND coalesce(coalesce(w.debt, 0) + 1 <= q.rate_burst, true);

-- Schedules: each moves from where whoever fires it has found it, not while it is paused, with its occurrences, and past all that are due.
CREATE VIEW interleave.broken_schedule AS
SELECT 'fired from elsewhere' AS name, format('%s from %s by %s', (p.o).name, (p.o).next_at, p.actor) AS detail
FROM interleave.plan p WHERE (p.n).next_at <> (p.o).next_at AND (p.n).expression = (p.o).expression
  AND NOT EXISTS (SELECT FROM interleave.firing f
    WHERE f.actor = p.actor AND f.name = (p.o).name AND f.was = (p.o).next_at AND f.next = (p.n).next_at)
UNION ALL
SELECT 'fired though paused', format('%s by %s', (p.o).name, p.actor)
FROM interleave.plan p WHERE (p.o).paused_at IS NOT NULL AND (p.n).next_at <> (p.o).next_at AND (p.n).expression = (p.o).expression
UNION ALL
SELECT 'occurrence of no schedule', format('%s by %s', (c.n).correlation_key, c.actor)
FROM interleave.change c WHERE (c.o).id IS NULL AND (c.n).correlation_key LIKE 'schedule:%'
  AND NOT EXISTS (SELECT FROM interleave.plan p WHERE p.xid = c.xid AND (p.n).last_instance >= (c.n).id)
UNION ALL
SELECT 'occurrence lost', format('%s by %s', k.key, f.actor)
FROM interleave.firing f CROSS JOIN LATERAL unnest(f.keys) AS k(key)
WHERE NOT f.told OR NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.correlation_key = k.key)
UNION ALL
SELECT 'occurrence twice', g.correlation_key
FROM gendurable.gen_durable g WHERE g.correlation_key LIKE 'schedule:%' GROUP BY g.correlation_key HAVING count(*) > 1
UNION ALL
SELECT 'overlap', format('%s instances of lone', count(*))
FROM gendurable.gen_durable g WHERE g.correlation_key LIKE 'schedule:lone:%' AND g.status NOT IN ('done', 'failed') HAVING count(*) > 1
UNION ALL
SELECT 'left due', format('%s at %s', s.name, s.next_at)
FROM gendurable.schedules s JOIN interleave.tried t ON t.name = s.name AND t.at >= s.next_at WHERE s.paused_at IS NULL;

-- What is changed from outside of a step: from the very copy that it was decided from, with its audit, or not at all. What stands aside
-- does so at its step, and comes to the front before it is claimed.
CREATE VIEW interleave.broken_edit AS
SELECT 'written over' AS name, format('instance %s at %s by %s', m.id, m.was, m.actor) AS detail
FROM interleave.move m WHERE NOT m.marked
  AND ((m.o).state, (m.o).step, (m.o).fsm_version) IS DISTINCT FROM ((m.n).state, (m.n).step, (m.n).fsm_version)
  AND m.seq NOT IN (SELECT seq FROM interleave.edit)
  AND NOT EXISTS (SELECT FROM interleave.ruling r WHERE r.actor = m.actor AND r.id = m.id AND r.replaced)
UNION ALL
SELECT 'edit untold', format('%s of instance %s by %s', e.verb, e.id, e.actor)
FROM interleave.edited e WHERE e.told AND NOT EXISTS (SELECT FROM interleave.edit m WHERE m.actor = e.actor AND m.id = e.id AND m.verb = e.verb)
UNION ALL
SELECT 'edit not recorded', format('%s of instance %s by %s, told %s', e.verb, e.id, e.actor, e.told)
FROM interleave.edited e WHERE (SELECT count(*) FROM gendurable.history h WHERE h.instance = e.id AND h.actor = e.actor AND h.kind = 'admin.' || e.verb)
  <> (SELECT count(*) FROM interleave.edited x WHERE x.id = e.id AND x.actor = e.actor AND x.verb = e.verb AND x.told)
UNION ALL
SELECT 'stray out of shape', format('instance %s at %s, aside at %s', g.id, g.step, g.aside_step)
FROM gendurable.gen_durable g WHERE g.pick_lane = 4 AND g.status = 'runnable' AND g.aside_step IS DISTINCT FROM g.step
UNION ALL
SELECT 'claimed from aside', format('instance %s by %s', m.id, m.actor)
FROM interleave.move m WHERE m.was = 'runnable' AND m.is = 'executing' AND (m.o).pick_lane = 4;

-- Inserts by rule: a window lets one in, whose instance it names, and is as open as it says; who replaces does so before anybody begins, and
-- what he was told is what is there; the newest is always inserted.
CREATE VIEW interleave.broken_rule AS
SELECT 'window exceeded' AS name, format('%s let %s in', r."window", array_agg(r.id)) AS detail
FROM interleave.ruling r WHERE r."window" ~ '^(throttle|once):' AND NOT r.throttled AND NOT r.duplicate GROUP BY r."window" HAVING count(*) > 1
UNION ALL
SELECT 'window lost', format('%s of instance %s', r."window", r.id)
FROM interleave.ruling r WHERE r."window" ~ '^(throttle|once):' AND NOT r.duplicate
  AND NOT EXISTS (SELECT FROM gendurable.windows w WHERE w.name = r."window" AND w.instance = r.id)
UNION ALL
SELECT 'window without an instance', format('%s of instance %s', w.name, w.instance)
FROM gendurable.windows w WHERE w.until > now() AND NOT EXISTS (SELECT FROM gendurable.gen_durable g WHERE g.id = w.instance)
UNION ALL
SELECT 'kept out by nobody', format('%s by instance %s', r."window", r.id)
FROM interleave.ruling r WHERE r.throttled AND NOT EXISTS (SELECT FROM interleave.ruling o WHERE o."window" = r."window" AND o.id = r.id AND NOT o.duplicate)
UNION ALL
SELECT 'debounced beside', format('%s wait', array_agg(g.id))
FROM gendurable.gen_durable g WHERE g.labels ->> 'w' = 'd' AND g.status = 'runnable' AND g.claim_token = 0 HAVING count(*) > 1
UNION ALL
SELECT 'replaced what had begun', format('instance %s by %s', r.id, r.actor)
FROM interleave.ruling r JOIN interleave.move m ON m.actor = r.actor AND m.id = r.id AND (m.n).state ->> 'n' = r.n::text AND (m.o).id IS NOT NULL
WHERE r.replaced AND (m.was <> 'runnable' OR (m.o).claim_token > 0)
UNION ALL
SELECT 'replaced in word only', format('instance %s by %s', r.id, r.actor)
FROM interleave.ruling r WHERE r.replaced AND NOT EXISTS (SELECT FROM interleave.move m WHERE m.actor = r.actor AND m.id = r.id AND (m.n).state ->> 'n' = r.n::text)
UNION ALL
SELECT 'refused beside what waits', format('instance %s by %s', r.id, r.actor)
FROM interleave.ruling r WHERE r.conflict = 'replace' AND r.duplicate AND NOT EXISTS (SELECT FROM interleave.change c WHERE (c.n).id = r.id AND (c.n).claim_token > 0)
UNION ALL
SELECT 'newest refused', format('beside instance %s, by %s', r.id, r.actor) FROM interleave.ruling r WHERE r.conflict = 'newest' AND r.duplicate;

-- Kept signals: each goes into the inbox of the first who has its key in time, or expires where nobody had.
-- Signals that were reported as kept, and who handed kept signals over.
CREATE UNLOGGED TABLE interleave.shelved (actor text, key text, name text, duplicate boolean);
CREATE UNLOGGED TABLE interleave.looked (actor text);

CREATE VIEW interleave.broken_shelf AS
SELECT 'kept beside its occupant' AS name, format('signal %s for %s, which %s has', k.id, k.key, g.id) AS detail
FROM gendurable.kept_signals k JOIN gendurable.gen_durable g ON g.correlation_guard = k.key
WHERE g.status NOT IN ('done', 'failed') AND g.inserted_at < k.expires_at
  AND (EXISTS (SELECT FROM interleave.looked) OR EXISTS (SELECT FROM interleave.change c WHERE (c.n).id = g.id)) -- else it was so from the start
UNION ALL
SELECT 'kept signal lost', format('signal %s for %s by %s', (x.o).id, (x.o).key, x.actor)
FROM interleave.shelf x WHERE (x.n).id IS NULL
  AND NOT EXISTS (SELECT FROM interleave.letter l WHERE l.xid = x.xid AND (l.o).id IS NULL AND (l.n).name = (x.o).name
    AND (l.n).inserted_at = (x.o).inserted_at)
  AND NOT EXISTS (SELECT FROM interleave.letter l WHERE (l.n).dedup_key = (x.o).dedup_key AND l.seq < x.seq)
  AND NOT ((x.o).expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM gendurable.gen_durable g
    WHERE g.correlation_guard = (x.o).key AND g.status NOT IN ('done', 'failed') AND g.inserted_at < (x.o).expires_at))
UNION ALL
SELECT 'told kept', format('a signal for %s by %s, of which nothing is known', t.key, t.actor)
FROM interleave.shelved t WHERE NOT t.duplicate
  AND NOT EXISTS (SELECT FROM interleave.shelf x WHERE x.actor = t.actor AND (x.n).key = t.key AND (x.n).name = t.name);

-- The history has exactly one row for each applied outcome and each sweep of a recorded machine's instance, in its own transaction, and
-- none for what was stale, left out or rolled back. Operators' verbs are always recorded.
CREATE VIEW interleave.transition AS
SELECT m.*, CASE WHEN u.kind = 'kept' OR u.unless <> '{}' AND m.is = 'runnable' THEN 'next' ELSE coalesce(u.kind, 'crash') END AS kind,
  CASE WHEN u.kind IN ('kept', 'next', 'await', 'children', 'rejoin') OR u.unless <> '{}' AND m.is = 'runnable' THEN (m.n).step END AS to_step
FROM interleave.move m LEFT JOIN interleave.outcome u ON m.marked AND u.mark = (m.n).commit_id AND u.id = m.id AND u.worker <> ''
WHERE m.was = 'executing' AND u.mark IS NOT NULL OR m.was = 'executing' AND (m.n).crashes > (m.o).crashes
UNION ALL
SELECT m.*, 'deadline', NULL FROM interleave.move m
WHERE m.was NOT IN ('done', 'failed') AND m.is = 'failed' AND (m.n).failure = 'deadline';

CREATE VIEW interleave.happened AS
SELECT h.*, h.xmin AS xid FROM gendurable.history h;

CREATE VIEW interleave.broken_history AS
SELECT 'transition not recorded once' AS name, format('%s of instance %s by %s', t.kind, t.id, t.actor) AS detail
FROM interleave.transition t WHERE EXISTS (SELECT FROM gendurable.recorded_machines)
  AND (SELECT count(*) FROM interleave.happened h WHERE h.instance = t.id AND h.xid = t.xid::xid AND strpos(h.kind, '.') = 0) <> 1
UNION ALL
SELECT 'recorded otherwise', format('%s of instance %s by %s as %s', t.kind, t.id, t.actor, h.kind)
FROM interleave.transition t JOIN interleave.happened h ON h.instance = t.id AND h.xid = t.xid::xid AND strpos(h.kind, '.') = 0
WHERE (h.kind, h.visit, h.step, h.to_step, h.at, h.attempt)
  IS DISTINCT FROM (t.kind, t.visit, (t.o).step, t.to_step, (t.n).updated_at, (t.o).attempt)
UNION ALL
SELECT 'recorded though it was none', format('%s of instance %s', h.kind, h.instance)
FROM interleave.happened h WHERE strpos(h.kind, '.') = 0
  AND NOT EXISTS (SELECT FROM interleave.transition t WHERE t.id = h.instance AND h.xid = t.xid::xid)
UNION ALL
SELECT 'verb not recorded once', format('of instance %s by %s', m.id, m.actor)
FROM interleave.move m WHERE (m.marked AND EXISTS (SELECT FROM interleave.outcome u WHERE u.mark = (m.n).commit_id AND u.kind = 'cancel')
    OR m.was = 'failed' AND m.is = 'runnable' OR (m.o).paused <> (m.n).paused
    AND NOT (m.was = 'executing' AND m.is = 'runnable')) -- a worker gives back, paused, what it cannot convert: no verb
  AND (SELECT count(*) FROM interleave.happened h WHERE h.instance = m.id AND h.xid = m.xid::xid AND h.actor IS NOT NULL) <> 1
UNION ALL
SELECT 'verb that changed nothing', format('%s of instance %s', h.kind, h.instance)
FROM interleave.happened h WHERE h.actor IS NOT NULL AND h.subject IS NULL
  AND NOT EXISTS (SELECT FROM interleave.move m WHERE m.id = h.instance AND h.xid = m.xid::xid);

-- Streams: ends are numbered in the order of their commits, each is shown to one visit, and a visit keeps its portion.
CREATE VIEW interleave.ending AS
SELECT m.seq, m.xid, m.id, (m.n).parent_id AS parent, (m.n).parent_round AS round, g.stream_nth AS nth FROM interleave.move m JOIN gendurable.gen_durable g ON g.id = m.id
WHERE (m.o).joined IS NULL AND (m.n).joined IS NOT NULL AND (m.n).parent_round < 0;
CREATE VIEW interleave.broken_stream AS
SELECT 'end without a number' AS name, format('child %s', e.id) AS detail FROM interleave.ending e WHERE e.nth IS NULL
UNION ALL
SELECT 'stream out of order', format('child %s before %s', a.id, b.id)
FROM interleave.ending a JOIN interleave.ending b ON b.parent = a.parent AND b.round = a.round AND b.nth < a.nth AND b.seq > a.seq AND b.xid <> a.xid
UNION ALL
SELECT 'shown before its end', format('child %s', g.id) FROM gendurable.gen_durable g WHERE g.stream_visit IS NOT NULL AND g.joined IS NULL
UNION ALL
SELECT 'shown twice', format('child %s by %s', m.id, m.actor)
FROM interleave.move m WHERE (m.o).stream_visit IS NOT NULL AND (m.n).stream_visit IS DISTINCT FROM (m.o).stream_visit
UNION ALL
SELECT 'portion grew', format('parent %s, visit %s', (m.n).parent_id, (m.n).stream_visit)
FROM interleave.move m WHERE (m.n).stream_visit IS DISTINCT FROM (m.o).stream_visit GROUP BY (m.n).parent_id, (m.n).stream_visit HAVING count(DISTINCT m.xid) > 1
UNION ALL
SELECT 'overslept a stream', format('parent %s', g.id)
FROM gendurable.gen_durable g WHERE g.status = 'awaiting_children' AND g.stream_most IS NOT NULL
  AND EXISTS (SELECT FROM gendurable.gen_durable k WHERE k.parent_id = g.id AND k.parent_round = g.round AND k.joined IS NOT NULL AND k.stream_visit IS NULL);

-- What is broken without gates, which cost a third of all, and at all.
CREATE VIEW interleave.broken_ungated AS
SELECT * FROM interleave.broken_fence UNION ALL SELECT * FROM interleave.broken_move UNION ALL SELECT * FROM interleave.broken_signal
UNION ALL SELECT * FROM interleave.broken_barrier UNION ALL SELECT * FROM interleave.broken_addition UNION ALL SELECT * FROM interleave.broken_key
UNION ALL SELECT * FROM interleave.broken_schedule UNION ALL SELECT * FROM interleave.broken_lost
UNION ALL SELECT * FROM interleave.broken_edit UNION ALL SELECT * FROM interleave.broken_stream
UNION ALL SELECT * FROM interleave.broken_rule UNION ALL SELECT * FROM interleave.broken_shelf
UNION ALL SELECT * FROM interleave.broken_history;
CREATE VIEW interleave.broken AS SELECT * FROM interleave.broken_ungated UNION ALL SELECT * FROM interleave.broken_gate;
