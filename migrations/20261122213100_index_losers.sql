-- atlas:txmode none

-- The parents that do not wait any more for the rest of a round, which is to be cancelled.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_losers"
  ON "gen_durable" ("id")
  WHERE "losers" IS NOT NULL AND ("status" <> 'awaiting_children' OR "losers"[1] <> "round");

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_losers') AND NOT indisvalid)
    AND to_regclass('gen_durable_losers_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_losers" RENAME TO "gen_durable_losers_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_losers_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_losers"
  ON "gen_durable" ("id")
  WHERE "losers" IS NOT NULL AND ("status" <> 'awaiting_children' OR "losers"[1] <> "round");

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_losers') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_losers was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_losers, then migrate again';
  END IF;
END $$;
