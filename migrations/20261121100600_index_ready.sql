-- atlas:txmode none

-- The pick's order. It ends in id: the rows of one bulk insert share eligible_at, and would be sorted by hand otherwise.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_ready"
  ON "gen_durable" ("queue", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 0;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_ready') AND NOT indisvalid)
    AND to_regclass('gen_durable_ready_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_ready" RENAME TO "gen_durable_ready_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_ready_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_ready"
  ON "gen_durable" ("queue", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 0;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_ready') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_ready was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_ready, then migrate again';
  END IF;
END $$;
