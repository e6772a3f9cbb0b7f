-- What happens to the engine's tables, in the order in which it takes effect. A row's changes are numbered under that row's lock, which is
-- held until the commit, and what rolls back takes its numbers along: so the numbers of one row's changes are in the order of their
-- commits. So are those of two rows of one partition key, or with one guard, where the later change waits for the earlier one's commit:
-- its trigger runs after the unique index has let it through.
CREATE SCHEMA soak;
CREATE SEQUENCE soak.seq;

-- quorum is that of a node; lost: a join has cancelled it, and no operator; shown is the visit that was shown this child of a stream.
CREATE TABLE soak.change (
  seq bigint NOT NULL, xid bigint NOT NULL, at timestamptz NOT NULL, op text NOT NULL, id bigint NOT NULL,
  fsm text, version int, step text, status text, visit bigint, token bigint, worker text, attempt int, crashes int, n int, label text, place int,
  queue text, priority int, key text, lease timestamptz, parent bigint, parent_round bigint, round bigint, pending int, joined uuid, guard text,
  failure text, timed_out boolean, paused boolean, eligible timestamptz, node text, quorum int, lost boolean, shown bigint,
  old_status text, old_step text, old_visit bigint, old_token bigint, old_worker text, old_attempt int, old_crashes int, old_n int,
  old_lease timestamptz, old_deadline timestamptz, old_round bigint, old_pending int, old_guard text, old_timed_out boolean, old_paused boolean,
  old_eligible timestamptz, old_joined uuid, old_failure text, old_shown bigint);

CREATE FUNCTION soak.record_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO soak.change VALUES (nextval('soak.seq'), pg_current_xact_id()::text::bigint, clock_timestamp(), 'I', NEW.id,
      NEW.fsm, NEW.fsm_version, NEW.step, NEW.status, NEW.visit, NEW.claim_token, NEW.locked_by, NEW.attempt, NEW.crashes,
      (NEW.state->>'N')::int, NEW.state->>'Label', (NEW.state->>'Place')::int, NEW.queue, NEW.priority, NEW.partition_key,
      NEW.lease_expires_at, NEW.parent_id, NEW.parent_round, NEW.round, NEW.children_pending, NEW.joined, NEW.correlation_guard, NEW.failure,
      NEW.timed_out, NEW.paused, NEW.eligible_at, NEW.node, NEW.wake_done, false, NULL);
  ELSIF TG_OP = 'UPDATE' THEN
    INSERT INTO soak.change VALUES (nextval('soak.seq'), pg_current_xact_id()::text::bigint, clock_timestamp(), 'U', NEW.id,
      NEW.fsm, NEW.fsm_version, NEW.step, NEW.status, NEW.visit, NEW.claim_token, NEW.locked_by, NEW.attempt, NEW.crashes,
      (NEW.state->>'N')::int, NEW.state->>'Label', (NEW.state->>'Place')::int, NEW.queue, NEW.priority, NEW.partition_key,
      NEW.lease_expires_at, NEW.parent_id, NEW.parent_round, NEW.round, NEW.children_pending, NEW.joined, NEW.correlation_guard, NEW.failure,
      NEW.timed_out, NEW.paused, NEW.eligible_at, NEW.node, NEW.wake_done,
      NEW.failure = 'cancelled' AND NEW.last_error = 'cancelled: its parent does not wait for it any more', NEW.stream_visit,
      OLD.status, OLD.step, OLD.visit, OLD.claim_token, OLD.locked_by, OLD.attempt, OLD.crashes, (OLD.state->>'N')::int,
      OLD.lease_expires_at, OLD.await_deadline, OLD.round, OLD.children_pending, OLD.correlation_guard, OLD.timed_out,
      OLD.paused, OLD.eligible_at, OLD.joined, OLD.failure, OLD.stream_visit);
  ELSE
    INSERT INTO soak.change (seq, xid, at, op, id, old_status, old_token, old_visit)
    VALUES (nextval('soak.seq'), pg_current_xact_id()::text::bigint, clock_timestamp(), 'D', OLD.id, OLD.status, OLD.claim_token, OLD.visit);
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER soak_record AFTER INSERT OR UPDATE OR DELETE ON gendurable.gen_durable
  FOR EACH ROW EXECUTE FUNCTION soak.record_change();

CREATE TABLE soak.signal (
  seq bigint NOT NULL, xid bigint NOT NULL, op text NOT NULL, id bigint NOT NULL, target bigint NOT NULL, dedup text, tag text);

-- op: I delivered, C consumed (deleted, or made a tombstone), E a tombstone's end.
CREATE FUNCTION soak.record_signal() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  s gendurable.signals := coalesce(NEW, OLD);
  what text := 'C';
BEGIN
  IF TG_OP = 'INSERT' THEN
    what := 'I';
  ELSIF TG_OP = 'DELETE' AND OLD.consumed_at IS NOT NULL THEN
    what := 'E';
  END IF;
  INSERT INTO soak.signal VALUES (nextval('soak.seq'), pg_current_xact_id()::text::bigint, what, s.id, s.target_id, s.dedup_key,
    CASE TG_OP WHEN 'INSERT' THEN NEW.payload->>'Tag' ELSE OLD.payload->>'Tag' END);
  RETURN NULL;
END $$;

CREATE TRIGGER soak_record AFTER INSERT OR UPDATE OR DELETE ON gendurable.signals
  FOR EACH ROW EXECUTE FUNCTION soak.record_signal();

-- Notes of lost claims: by says which process made the change, lives whether the worker that lost the claim has its liveness lock.
CREATE TABLE soak.lost (
  seq bigint NOT NULL, xid bigint NOT NULL, op text NOT NULL, key text NOT NULL, worker text NOT NULL, token bigint NOT NULL, by text NOT NULL,
  lives boolean NOT NULL);

CREATE FUNCTION soak.record_lost() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  l gendurable.lost_claims := coalesce(NEW, OLD);
BEGIN
  INSERT INTO soak.lost VALUES (nextval('soak.seq'), pg_current_xact_id()::text::bigint, left(TG_OP, 1), l.partition_key, l.worker, l.claim_token,
    current_setting('application_name'), EXISTS (SELECT FROM pg_locks k WHERE k.locktype = 'advisory' AND k.mode = 'ShareLock' AND k.granted
      AND k.objsubid = 1 AND (k.classid::bigint << 32) + k.objid::bigint = hashtextextended('gendurable gendurable ' || l.worker, 0)));
  RETURN NULL;
END $$;

CREATE TRIGGER soak_record AFTER INSERT OR UPDATE OR DELETE ON gendurable.lost_claims
  FOR EACH ROW EXECUTE FUNCTION soak.record_lost();

-- Schedules: whoever fires one holds its row's lock until the commit, as above. since is when the transaction began.
CREATE TABLE soak.schedule (
  seq bigint NOT NULL, xid bigint NOT NULL, at timestamptz NOT NULL, since timestamptz NOT NULL, op text NOT NULL, name text NOT NULL,
  expression text NOT NULL, catch_up text NOT NULL, overlap text NOT NULL, next timestamptz, last timestamptz, instance bigint,
  old_next timestamptz, old_last timestamptz, old_instance bigint, old_paused boolean);

CREATE FUNCTION soak.record_schedule() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  s gendurable.schedules := coalesce(NEW, OLD);
BEGIN
  INSERT INTO soak.schedule VALUES (nextval('soak.seq'), pg_current_xact_id()::text::bigint, clock_timestamp(), now(), left(TG_OP, 1), s.name,
    s.expression, s.catch_up, s.overlap, NEW.next_at, NEW.last_at, NEW.last_instance,
    OLD.next_at, OLD.last_at, OLD.last_instance, OLD.paused_at IS NOT NULL);
  RETURN NULL;
END $$;

CREATE TRIGGER soak_record AFTER INSERT OR UPDATE OR DELETE ON gendurable.schedules
  FOR EACH ROW EXECUTE FUNCTION soak.record_schedule();

-- Places at gates, of all kinds: who takes one (delta 1), who has it no longer (-1), and who begins at a gate with a rate (0). The key of a
-- seat is its queue. Who takes a place has the lock of its gate, and sees whatever gave one up before: so the sum of the changes up to his own
-- is at least what he has counted, and he is the last whose number is in it.
CREATE TABLE soak.holding (seq bigint NOT NULL, xid bigint NOT NULL, at timestamptz NOT NULL, id bigint NOT NULL, kind text NOT NULL, key text NOT NULL,
  delta int NOT NULL);

CREATE FUNCTION soak.record_holding() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  n bigint := nextval('soak.seq');
BEGIN
  INSERT INTO soak.holding
  SELECT n, pg_current_xact_id()::text::bigint, clock_timestamp(), NEW.id, k.kind, k.key, k.delta FROM (
    SELECT 'place', OLD.gate, -1 WHERE OLD.place IS NOT NULL AND (OLD.place, OLD.gate) IS DISTINCT FROM (NEW.place, NEW.gate)
    UNION ALL SELECT 'place', NEW.gate, 1 WHERE NEW.place IS NOT NULL AND (OLD.place, OLD.gate) IS DISTINCT FROM (NEW.place, NEW.gate)
    UNION ALL SELECT 'run', OLD.run_gate, -1 WHERE OLD.run_place IS NOT NULL AND OLD.finished_at IS NULL
      AND (NEW.run_place IS NULL OR NEW.finished_at IS NOT NULL OR NEW.run_gate <> OLD.run_gate)
    UNION ALL SELECT 'run', NEW.run_gate, 1 WHERE NEW.run_place IS NOT NULL AND NEW.finished_at IS NULL
      AND (OLD.run_place IS NULL OR OLD.finished_at IS NOT NULL OR NEW.run_gate <> OLD.run_gate)
    UNION ALL SELECT 'seat', OLD.queue, -1 WHERE OLD.seat IS NOT NULL AND NEW.seat IS NULL
    UNION ALL SELECT 'seat', NEW.queue, 1 WHERE NEW.seat IS NOT NULL AND OLD.seat IS NULL
    UNION ALL SELECT 'begins', NEW.gate, 0 WHERE OLD.status <> 'executing' AND NEW.status = 'executing' AND NEW.gate IS NOT NULL
    UNION ALL SELECT 'begins', 'queue ' || NEW.queue, 0 WHERE OLD.status <> 'executing' AND NEW.status = 'executing') AS k(kind, key, delta);
  RETURN NULL;
END $$;

CREATE TRIGGER soak_hold AFTER UPDATE ON gendurable.gen_durable FOR EACH ROW
  WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.place IS DISTINCT FROM NEW.place OR OLD.run_place IS DISTINCT FROM NEW.run_place)
  EXECUTE FUNCTION soak.record_holding();

CREATE TABLE soak.rule (seq bigint NOT NULL, at timestamptz NOT NULL, name text NOT NULL, rule gendurable.gates);

CREATE FUNCTION soak.record_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO soak.rule VALUES (nextval('soak.seq'), clock_timestamp(), coalesce(NEW.name, OLD.name), NEW);
  RETURN NULL;
END $$;

CREATE TRIGGER soak_record AFTER INSERT OR UPDATE OR DELETE ON gendurable.gates FOR EACH ROW EXECUTE FUNCTION soak.record_rule();

-- Places that keys have of their own; NULL: those of the gate.
CREATE TABLE soak.own (seq bigint NOT NULL, at timestamptz NOT NULL, key text NOT NULL, places int);

CREATE FUNCTION soak.record_own() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO soak.own VALUES (nextval('soak.seq'), clock_timestamp(), coalesce(NEW.key, OLD.key), NEW.places);
  RETURN NULL;
END $$;

CREATE TRIGGER soak_own_new AFTER INSERT ON gendurable.gate_keys FOR EACH ROW WHEN (NEW.places IS NOT NULL) EXECUTE FUNCTION soak.record_own();
CREATE TRIGGER soak_own AFTER UPDATE ON gendurable.gate_keys FOR EACH ROW
  WHEN (OLD.places IS DISTINCT FROM NEW.places) EXECUTE FUNCTION soak.record_own();

-- What was paid for claims, and when by the clock of the claim.
CREATE TABLE soak.payment (seq bigint NOT NULL, xid bigint NOT NULL, key text NOT NULL, at timestamptz NOT NULL);

CREATE FUNCTION soak.record_payment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO soak.payment VALUES (nextval('soak.seq'), pg_current_xact_id()::text::bigint, NEW.key, NEW.at);
  RETURN NULL;
END $$;

CREATE TRIGGER soak_paid AFTER UPDATE OF debt ON gendurable.gate_keys FOR EACH ROW EXECUTE FUNCTION soak.record_payment();
CREATE TRIGGER soak_paid_first AFTER INSERT ON gendurable.gate_keys FOR EACH ROW WHEN (NEW.debt > 0) EXECUTE FUNCTION soak.record_payment();

-- The hosts' own tables. Nothing keeps a row from being written twice: that is for the engine to see to.
CREATE TABLE soak.hosted (name text NOT NULL, xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint);
CREATE TABLE soak.booking (id bigint NOT NULL, visit bigint NOT NULL, token bigint NOT NULL, letter text,
  xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint);
CREATE TABLE soak.account (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0);
INSERT INTO soak.account SELECT generate_series(0, 39);

-- The processes' log, once it is over; seq is the line.
CREATE TABLE soak.event (
  seq bigint NOT NULL, at timestamptz NOT NULL, process text NOT NULL, kind text NOT NULL, id bigint, visit bigint, token bigint, machine text,
  version int, step text, attempt int, crashes int, n int, label text, key text, idempotency text, outcome text, to_step text, to_n int,
  signals bigint[], tags text[], target bigint, tag text, dedup text, duplicate boolean, children bigint[], count bigint, detail text,
  policy jsonb, -- of a join: see its type
  fence bigint); -- the token that the step saw; token is that of its claim
