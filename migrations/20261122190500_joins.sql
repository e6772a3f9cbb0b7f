SET LOCAL lock_timeout = '5s';

-- A parent may be woken before all of its children have ended: by the policy of their round. NULL: it has none.
ALTER TABLE "gen_durable"
  ADD COLUMN "join_round" bigint NULL,
  ADD COLUMN "join_size" integer NULL,
  ADD COLUMN "join_done" integer NULL,
  ADD COLUMN "join_failed" integer NULL,
  ADD COLUMN "wake_done" integer NULL,
  ADD COLUMN "wake_failed" integer NULL,
  ADD COLUMN "wake_ended" integer NULL;

-- Puts a signal into the inbox of a live instance, by id or by the key that it occupies, and wakes it if it awaits that name, also
-- beside children. A dedup key that
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
  WHERE g.id = gen_durable_signal.id AND g.status IN ('awaiting_signal', 'awaiting_children')
    AND gen_durable_signal.name = ANY(g.awaits);
END $$;
