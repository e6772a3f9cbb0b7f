-- atlas:txmode none

-- The instances in line in a queue, by gate in the order of bytes, and then in the order of the pick.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_lines"
  ON "gen_durable" ("queue", "gate" text_pattern_ops, "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 3;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_lines') AND NOT indisvalid)
    AND to_regclass('gen_durable_lines_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_lines" RENAME TO "gen_durable_lines_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_lines_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_lines"
  ON "gen_durable" ("queue", "gate" text_pattern_ops, "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 3;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_lines') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_lines was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_lines, then migrate again';
  END IF;
END $$;
