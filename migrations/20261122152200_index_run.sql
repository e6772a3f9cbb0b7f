-- atlas:txmode none

-- Nobody gives a place of a gate for whole runs twice.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_run"
  ON "gen_durable" ("run_gate", "run_place")
  WHERE "run_place" IS NOT NULL AND "finished_at" IS NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_run') AND NOT indisvalid)
    AND to_regclass('gen_durable_run_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_run" RENAME TO "gen_durable_run_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_run_cut_off";

CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_run"
  ON "gen_durable" ("run_gate", "run_place")
  WHERE "run_place" IS NOT NULL AND "finished_at" IS NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_run') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_run was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_run, then migrate again';
  END IF;
END $$;
