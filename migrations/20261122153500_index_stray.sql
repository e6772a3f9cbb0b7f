-- atlas:txmode none

-- The instances that are set aside at each step, in the order of the pick.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_stray"
  ON "gen_durable" ("queue", "fsm", "fsm_version", "aside_step", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 4;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_stray') AND NOT indisvalid)
    AND to_regclass('gen_durable_stray_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_stray" RENAME TO "gen_durable_stray_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_stray_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_stray"
  ON "gen_durable" ("queue", "fsm", "fsm_version", "aside_step", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 4;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_stray') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_stray was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_stray, then migrate again';
  END IF;
END $$;
