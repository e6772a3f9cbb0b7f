SET LOCAL lock_timeout = '5s';

-- Makes the partitions of today and of the days ahead, and removes the days that are past keep. It runs with the rights of its owner, so that
-- workers need none that would change a row. No commit waits for it:
-- - A new day is a table of its own before ATTACH takes it in, which locks the days that others write only against other DDL. PARTITION OF
--   would lock the whole history against its writers.
-- - An old day is emptied by TRUNCATE, which locks that day alone. To drop it takes the whole history for a moment, so that is left to a
--   moment at which nobody has it (NOWAIT): an empty table costs nothing.
-- - Every wait is over after 200 ms, and the next call goes on.
CREATE OR REPLACE FUNCTION "gen_durable_roll_history"(keep interval, ahead integer DEFAULT 7, OUT made integer, OUT dropped integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
  -- Names are qualified: a temporary table of the caller's would come first.
  home CONSTANT text := quote_ident(current_schema());
  whole CONSTANT regclass := (home || '.history')::regclass;
  rest CONSTANT regclass := (home || '.history_rest')::regclass;
  today CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
  day date;
  part text;
  old record;
  taken boolean;
BEGIN
  made := 0;
  dropped := 0;
  IF coalesce(keep < interval '1 day', true) OR coalesce(ahead NOT BETWEEN 0 AND 100, true) THEN
    RAISE EXCEPTION 'gen_durable_roll_history: keep % and ahead %, want at least a day, and 0 to 100', keep, ahead
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NOT pg_try_advisory_xact_lock(hashtextextended('gendurable history ' || home, 0)) THEN
    RETURN; -- somebody else rolls
  END IF;

  FOR day IN SELECT today + n FROM generate_series(0, ahead) n LOOP
    part := home || '.history_' || to_char(day, 'YYYYMMDD');
    CONTINUE WHEN to_regclass(part) IS NOT NULL;
    -- Rows of that day have gone to history_rest already, where they stay. It is looked through before it is locked, and ATTACH looks
    -- through it again, under a lock that would stop who writes there: not while it is large.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE at >= $1 AND at < $2) OR pg_relation_size($3) > 256 * 1024 * 1024', rest)
      INTO taken USING day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC', rest;
    CONTINUE WHEN taken;
    BEGIN
      EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', part, whole);
      EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', whole, part,
        day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
      made := made + 1;
    EXCEPTION
      WHEN lock_not_available THEN EXIT;
      WHEN check_violation THEN NULL; -- a row came meanwhile
    END;
  END LOOP;

  -- What has no day of its own goes row by row.
  EXECUTE format('DELETE FROM %s WHERE ctid = ANY(ARRAY(SELECT ctid FROM %s WHERE at < now() - $1 LIMIT 10000))', rest, rest) USING keep;

  FOR old IN
    SELECT c.oid::regclass AS part FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = whole AND c.relname ~ '^history_\d{8}$'
      AND to_date(substr(c.relname, 9), 'YYYYMMDD') + 1 <= ((now() - keep) AT TIME ZONE 'UTC')::date
    ORDER BY c.relname LIMIT 100
  LOOP
    BEGIN
      IF pg_relation_size(old.part) > 0 THEN
        EXECUTE format('TRUNCATE %s', old.part);
      END IF;
      EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', whole);
      EXECUTE format('DROP TABLE %s', old.part);
      dropped := dropped + 1;
    EXCEPTION WHEN lock_not_available THEN
      NULL;
    END;
  END LOOP;
END $$;
