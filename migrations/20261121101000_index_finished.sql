-- atlas:txmode none

-- For GC. Not on updated_at: an index that names what every commit changes costs every commit its heap-only update.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_finished"
  ON "gen_durable" ("finished_at")
  WHERE "finished_at" IS NOT NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_finished') AND NOT indisvalid)
    AND to_regclass('gen_durable_finished_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_finished" RENAME TO "gen_durable_finished_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_finished_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_finished"
  ON "gen_durable" ("finished_at")
  WHERE "finished_at" IS NOT NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_finished') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_finished was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_finished, then migrate again';
  END IF;
END $$;
