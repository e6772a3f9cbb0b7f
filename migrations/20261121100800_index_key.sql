-- atlas:txmode none

-- The order within a partition key and queue: who is at its head.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_key"
  ON "gen_durable" ("partition_key", "queue", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "partition_key" IS NOT NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_key') AND NOT indisvalid)
    AND to_regclass('gen_durable_key_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_key" RENAME TO "gen_durable_key_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_key_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_key"
  ON "gen_durable" ("partition_key", "queue", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "partition_key" IS NOT NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_key') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_key was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_key, then migrate again';
  END IF;
END $$;
