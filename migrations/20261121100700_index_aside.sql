-- atlas:txmode none

-- Rows whose machine some worker did not know, by machine: a worker that knows it finds them, no other walks over them.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_aside"
  ON "gen_durable" ("queue", "fsm", "fsm_version", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 2;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_aside') AND NOT indisvalid)
    AND to_regclass('gen_durable_aside_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_aside" RENAME TO "gen_durable_aside_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_aside_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_aside"
  ON "gen_durable" ("queue", "fsm", "fsm_version", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 2;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_aside') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_aside was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_aside, then migrate again';
  END IF;
END $$;
