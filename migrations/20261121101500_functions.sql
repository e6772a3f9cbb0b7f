SET LOCAL lock_timeout = '5s';

-- What other languages insert and signal by; the engine itself has statements of its own. Both run in the caller's transaction, with the
-- caller's rights, and find the tables wherever this migration has found them. OR REPLACE: the
-- Atlas CLI leaves functions behind in its dev database.

-- Inserts an instance, unless its key is occupied: then id is the occupant's. scope says for how long a key is occupied, as fsm.Scope does.
CREATE OR REPLACE FUNCTION "gen_durable_insert"(
  machine text, state jsonb DEFAULT '{}', version integer DEFAULT 1, step text DEFAULT 'start', queue text DEFAULT 'default',
  priority integer DEFAULT 0, correlation_key text DEFAULT NULL, scope text DEFAULT 'live', partition_key text DEFAULT NULL,
  eligible_at timestamptz DEFAULT NULL, deadline timestamptz DEFAULT NULL, labels jsonb DEFAULT NULL,
  OUT id bigint, OUT duplicate boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  live CONSTANT durable_status[] := '{runnable,executing,awaiting_signal,awaiting_children}';
  occupied durable_status[];
BEGIN
  CASE scope
    WHEN 'live' THEN occupied := live;
    WHEN 'live_or_done' THEN occupied := live || '{done}'::durable_status[];
    WHEN 'live_or_failed' THEN occupied := live || '{failed}'::durable_status[];
    WHEN 'all' THEN occupied := live || '{done,failed}'::durable_status[];
    WHEN 'none' THEN occupied := '{}';
    ELSE RAISE EXCEPTION 'gen_durable_insert: scope %, want live, live_or_done, live_or_failed, all or none', coalesce(quote_literal(scope), 'NULL')
      USING ERRCODE = 'invalid_parameter_value';
  END CASE;
  FOR try IN 1..10 LOOP
    INSERT INTO gen_durable AS g (fsm, fsm_version, step, state, queue, priority, correlation_key, correlation_scope, partition_key, eligible_at,
      deadline, labels)
    VALUES (gen_durable_insert.machine, gen_durable_insert.version, gen_durable_insert.step, gen_durable_insert.state,
      gen_durable_insert.queue, gen_durable_insert.priority, gen_durable_insert.correlation_key,
      CASE WHEN gen_durable_insert.correlation_key IS NULL THEN '{}' ELSE occupied END, gen_durable_insert.partition_key,
      greatest(gen_durable_insert.eligible_at, clock_timestamp()), gen_durable_insert.deadline, gen_durable_insert.labels)
    ON CONFLICT (correlation_guard) WHERE correlation_guard IS NOT NULL DO NOTHING
    RETURNING g.id INTO gen_durable_insert.id;
    IF FOUND THEN
      duplicate := false;
      RETURN;
    END IF;
    SELECT g.id INTO gen_durable_insert.id FROM gen_durable g WHERE g.correlation_guard = gen_durable_insert.correlation_key;
    IF FOUND THEN
      duplicate := true;
      RETURN;
    END IF;
  END LOOP; -- its key was freed between the two statements
  RAISE EXCEPTION 'gen_durable_insert: the key was taken and freed again at every attempt' USING ERRCODE = 'serialization_failure',
    HINT = 'Try again.';
END $$;

-- Puts a signal into the inbox of a live instance, by id or by the key that it occupies, and wakes it if it awaits that name. A dedup key that
-- the instance has seen is a duplicate, and nothing happens. SQLSTATE Y0001: there is no such instance, or it has ended; Y0002: its inbox is
-- full.
CREATE OR REPLACE FUNCTION "gen_durable_signal"(
  name text, payload jsonb DEFAULT '{}', target bigint DEFAULT NULL, correlation_key text DEFAULT NULL, dedup_key text DEFAULT NULL,
  inbox integer DEFAULT 10000, OUT id bigint, OUT duplicate boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  unread bigint;
BEGIN
  IF (target IS NULL) = (correlation_key IS NULL) THEN
    RAISE EXCEPTION 'gen_durable_signal: give either target or correlation_key' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The target is locked before anything is written, and each statement here sees what the one before it has waited for: whoever parks,
  -- ends or deletes the instance is before or after this delivery, never beside it. A key may move to another instance meanwhile.
  FOR try IN 1..3 LOOP
    IF target IS NOT NULL THEN
      SELECT g.id INTO gen_durable_signal.id FROM gen_durable g
      WHERE g.id = target AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE;
    ELSE
      SELECT g.id INTO gen_durable_signal.id FROM gen_durable g
      WHERE g.correlation_guard = gen_durable_signal.correlation_key AND g.status NOT IN ('done', 'failed') FOR NO KEY UPDATE;
    END IF;
    EXIT WHEN FOUND;
  END LOOP;
  IF gen_durable_signal.id IS NULL THEN
    RAISE EXCEPTION 'gen_durable_signal: no live target' USING ERRCODE = 'Y0001',
      DETAIL = format('It has ended, or never was: %s.', coalesce('instance ' || target, 'key ' || quote_literal(correlation_key)));
  END IF;
  duplicate := EXISTS (SELECT FROM signals s WHERE s.target_id = gen_durable_signal.id AND s.dedup_key = gen_durable_signal.dedup_key);
  IF duplicate THEN
    RETURN;
  END IF;
  SELECT count(*) INTO unread FROM (
    SELECT FROM signals s WHERE s.target_id = gen_durable_signal.id AND s.consumed_at IS NULL LIMIT gen_durable_signal.inbox) n;
  IF unread >= gen_durable_signal.inbox THEN
    RAISE EXCEPTION 'gen_durable_signal: inbox full' USING ERRCODE = 'Y0002',
      DETAIL = format('Instance %s has %s signals that it has not consumed.', gen_durable_signal.id, unread);
  END IF;
  INSERT INTO signals (target_id, name, payload, dedup_key)
  VALUES (gen_durable_signal.id, gen_durable_signal.name, gen_durable_signal.payload, gen_durable_signal.dedup_key);
  UPDATE gen_durable g SET status = 'runnable', eligible_at = clock_timestamp(), await_deadline = NULL, pick_lane = 0, updated_at = clock_timestamp()
  WHERE g.id = gen_durable_signal.id AND g.status = 'awaiting_signal' AND gen_durable_signal.name = ANY(g.awaits);
END $$;
