-- atlas:txmode none

-- A time that is infinite does not scan into a Go time. Earlier checks left out the columns that only a host's own SQL could set to one.
-- Each statement is a transaction of its own: the checks are added under a lock of a moment, and validated under one that stops
-- neither readers nor writers. Each of them may be run again.
DO $add$
DECLARE
  added record;
BEGIN
  FOR added IN SELECT * FROM (VALUES
    ('gen_durable', 'isfinite("inserted_at") AND isfinite("updated_at")'),
    ('signals', 'isfinite("inserted_at")'),
    ('schedules', 'isfinite("updated_at")'),
    ('paused_queues', 'isfinite("paused_at")')) AS v(name, condition)
  LOOP
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = added.name::regclass AND conname = added.name || '_times_check') THEN
      PERFORM set_config('lock_timeout', '5s', true);
      EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (%s) NOT VALID', added.name, added.name || '_times_check', added.condition);
    END IF;
    COMMIT; -- no lock is held while another is waited for
  END LOOP;
END $add$;

-- Rows from before, row by row: each is locked for a moment, and found without a lock.
DO $mend$
DECLARE
  bad bigint[];
  one bigint;
BEGIN
  SELECT array_agg(id) INTO bad FROM gen_durable WHERE NOT (isfinite(inserted_at) AND isfinite(updated_at));
  FOREACH one IN ARRAY coalesce(bad, '{}') LOOP
    UPDATE gen_durable SET
      inserted_at = CASE WHEN isfinite(inserted_at) THEN inserted_at WHEN isfinite(updated_at) THEN least(updated_at, now()) ELSE now() END,
      updated_at = CASE WHEN isfinite(updated_at) THEN updated_at ELSE now() END
      WHERE id = one;
    COMMIT;
  END LOOP;
  SELECT array_agg(id) INTO bad FROM signals WHERE NOT isfinite(inserted_at);
  FOREACH one IN ARRAY coalesce(bad, '{}') LOOP
    UPDATE signals SET inserted_at = now() WHERE id = one;
    COMMIT;
  END LOOP;
  UPDATE schedules SET updated_at = now() WHERE NOT isfinite(updated_at);
  COMMIT;
  UPDATE paused_queues SET paused_at = now() WHERE NOT isfinite(paused_at);
END $mend$;

DO $validate$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY '{gen_durable,signals,schedules,paused_queues}'::text[] LOOP
    PERFORM set_config('lock_timeout', '5s', true);
    EXECUTE format('ALTER TABLE %I VALIDATE CONSTRAINT %I', name, name || '_times_check');
    COMMIT;
  END LOOP;
END $validate$;
