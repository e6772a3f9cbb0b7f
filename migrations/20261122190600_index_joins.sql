-- atlas:txmode none

-- The parents that wait under a policy.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_joins"
  ON "gen_durable" ("id")
  WHERE "join_round" IS NOT NULL AND "status" = 'awaiting_children';

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_joins') AND NOT indisvalid)
    AND to_regclass('gen_durable_joins_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_joins" RENAME TO "gen_durable_joins_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_joins_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_joins"
  ON "gen_durable" ("id")
  WHERE "join_round" IS NOT NULL AND "status" = 'awaiting_children';

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_joins') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_joins was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_joins, then migrate again';
  END IF;
END $$;
