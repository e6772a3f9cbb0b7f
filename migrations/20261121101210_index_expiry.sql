-- atlas:txmode none

-- For the deadlines of instances.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_expiry"
  ON "gen_durable" ("deadline")
  WHERE "deadline" IS NOT NULL AND "finished_at" IS NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_expiry') AND NOT indisvalid)
    AND to_regclass('gen_durable_expiry_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_expiry" RENAME TO "gen_durable_expiry_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_expiry_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_expiry"
  ON "gen_durable" ("deadline")
  WHERE "deadline" IS NOT NULL AND "finished_at" IS NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_expiry') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_expiry was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_expiry, then migrate again';
  END IF;
END $$;
