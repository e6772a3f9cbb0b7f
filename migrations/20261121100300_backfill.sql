-- atlas:txmode none

-- Rows of version 1 are brought in line with the checks, in batches of a thousand, each committed by itself. A row without a uid has
-- not been visited yet, so an interrupted run is simply repeated. A row that no rule below can mend is left as it is; when all others
-- are done, the migration fails and names it.
DO $backfill$
DECLARE
  live CONSTANT durable_status[] := '{runnable,executing,awaiting_signal,awaiting_children}';
  batch bigint[];
  slice bigint[];
  size int;
  next int;
  last_id bigint := 0;
  parents bigint[];
  violated text;
  refused text[] := '{}';
BEGIN
  LOOP
    SELECT array_agg(id ORDER BY id) INTO batch
      FROM (SELECT id FROM gen_durable WHERE id > last_id AND uid IS NULL ORDER BY id LIMIT 1000) unvisited;
    EXIT WHEN batch IS NULL;
    last_id := batch[cardinality(batch)];
    size := cardinality(batch);
    next := 1;

    WHILE next <= cardinality(batch) LOOP
      slice := batch[next:next + size - 1];
      BEGIN
        WITH old AS (
          SELECT id, array_remove(awaits, NULL) AS names,
                 status = 'awaiting_signal' AND coalesce(cardinality(array_remove(awaits, NULL)), 0) = 0 AS unwakeable
            FROM gen_durable WHERE id = ANY (slice) ORDER BY id FOR NO KEY UPDATE
        ), mended AS (
          UPDATE gen_durable g SET
            uid = gen_random_uuid(),
            status = CASE
              WHEN old.unwakeable THEN 'failed'
              WHEN g.status = 'awaiting_children' AND g.children_pending <= 0 THEN 'runnable'
              ELSE g.status END,
            awaits = old.names,
            last_error = CASE WHEN old.unwakeable THEN 'awaited no signal: nothing could have woken it' ELSE g.last_error END,
            failure = CASE WHEN old.unwakeable OR g.status = 'failed' THEN 'error' END,
            finished_at = CASE
              WHEN old.unwakeable THEN now()
              WHEN g.status IN ('done', 'failed') THEN CASE WHEN isfinite(g.updated_at) THEN g.updated_at ELSE now() END END,
            correlation_scope = CASE
              WHEN g.correlation_scope = '{}' OR g.correlation_scope @> live THEN g.correlation_scope
              ELSE live || ARRAY(SELECT s FROM unnest('{done,failed}'::durable_status[]) s WHERE s = ANY (g.correlation_scope)) END,
            eligible_at = CASE WHEN isfinite(g.eligible_at) THEN g.eligible_at ELSE now() END,
            -- An executing one without a lease was lost by its worker: with an expired one the reaper takes it.
            locked_by = CASE WHEN g.status = 'executing' THEN coalesce(g.locked_by, 'unknown') ELSE g.locked_by END,
            lease_expires_at = CASE
              WHEN isfinite(g.lease_expires_at) THEN g.lease_expires_at
              WHEN g.status = 'executing' THEN now() END,
            attempt = greatest(g.attempt, 0),
            children_pending = greatest(g.children_pending, 0),
            -- Version 1 knows no rounds: all children of a parent are one, the first, and those that have ended have joined.
            visit = has.children::int,
            round = has.children::int,
            parent_round = (g.parent_id IS NOT NULL)::int,
            joined = CASE
              WHEN g.parent_id IS NOT NULL AND (old.unwakeable OR g.status IN ('done', 'failed')) THEN gen_random_uuid() END
            FROM old
            CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM gen_durable child WHERE child.parent_id = old.id) AS children) has
            WHERE g.id = old.id
            RETURNING g.parent_id, old.unwakeable
        )
        SELECT array_agg(parent_id) INTO parents FROM mended WHERE unwakeable AND parent_id IS NOT NULL;

        -- Who was failed above still holds a slot of its parent's barrier.
        UPDATE gen_durable p SET
          children_pending = greatest(p.children_pending - ended.count, 0),
          status = CASE WHEN p.status = 'awaiting_children' AND p.children_pending <= ended.count THEN 'runnable' ELSE p.status END
          FROM (SELECT parent_id, count(*)::int FROM unnest(parents) parent_id GROUP BY parent_id) ended
          WHERE p.id = ended.parent_id;

        next := next + size;
      EXCEPTION WHEN unique_violation OR check_violation THEN
        IF size = 1 THEN
          GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
          refused := refused || (SELECT format('%s (%s)', r.id, coalesce(
              (SELECT format('its correlation key is held by %s', o.id) FROM gen_durable o
                WHERE o.correlation_guard = r.correlation_key AND o.id <> r.id AND violated = 'gen_durable_correlation'),
              'violates ' || violated))
            FROM gen_durable r WHERE r.id = slice[1]);
          next := next + 1;
        END IF;
        size := 1;
      END;
    END LOOP;
    COMMIT;
  END LOOP;

  IF refused <> '{}' THEN
    RAISE EXCEPTION '% instances of version 1 cannot be mended: %; change or delete them, then migrate again',
      cardinality(refused), array_to_string(refused[1:20], ', ') || CASE WHEN cardinality(refused) > 20 THEN ', …' ELSE '' END;
  END IF;
END $backfill$;

-- At most one step of a key executes at a time: version 1 could lose that, and the index that promises it could not be built.
UPDATE "gen_durable" g
  SET "status" = 'runnable', "attempt" = g."attempt" + 1, "crashes" = g."crashes" + 1, "locked_by" = NULL, "lease_expires_at" = NULL
  FROM (
    SELECT "id", row_number() OVER (PARTITION BY "partition_key" ORDER BY "id") AS place
      FROM "gen_durable" WHERE "status" = 'executing' AND "partition_key" IS NOT NULL
  ) holder
  WHERE g."id" = holder."id" AND holder.place > 1 AND g."status" = 'executing';

-- A signal is somebody's data: it is not renamed here, only reported.
DO $signals$
DECLARE
  refused text[];
BEGIN
  SELECT array_agg(id::text ORDER BY id) INTO refused FROM signals
    WHERE NOT (octet_length(name) BETWEEN 1 AND 512 AND coalesce(octet_length(dedup_key), 1) BETWEEN 1 AND 512);
  IF refused IS NOT NULL THEN
    RAISE EXCEPTION '% signals of version 1 have an empty or over-long name or dedup_key: %; change or delete them, then migrate again',
      cardinality(refused), array_to_string(refused[1:20], ', ') || CASE WHEN cardinality(refused) > 20 THEN ', …' ELSE '' END;
  END IF;
END $signals$;
