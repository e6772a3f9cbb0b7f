-- atlas:txmode none

-- By it the GC finds instances that have a retention of their own.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_retained"
  ON "gen_durable" ("finished_at")
  WHERE (retain IS NOT NULL AND finished_at IS NOT NULL);

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_retained') AND NOT indisvalid)
    AND to_regclass('gen_durable_retained_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_retained" RENAME TO "gen_durable_retained_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_retained_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_retained"
  ON "gen_durable" ("finished_at")
  WHERE (retain IS NOT NULL AND finished_at IS NOT NULL);

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_retained') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_retained was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_retained, then migrate again';
  END IF;
END $$;
