-- atlas:txmode none

-- A concurrent index build, which may be cut off anywhere and run again.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_toy"
  ON "gen_durable" ("toy")
  WHERE "toy" IS NOT NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_toy') AND NOT indisvalid)
    AND to_regclass('gen_durable_toy_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_toy" RENAME TO "gen_durable_toy_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_toy_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_toy"
  ON "gen_durable" ("toy")
  WHERE "toy" IS NOT NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_toy') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_toy was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_toy, then migrate again';
  END IF;
END $$;
