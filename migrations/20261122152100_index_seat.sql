-- atlas:txmode none

-- Nobody gives a place of a queue's gate twice.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_seat"
  ON "gen_durable" ("queue", "seat")
  WHERE "seat" IS NOT NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_seat') AND NOT indisvalid)
    AND to_regclass('gen_durable_seat_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_seat" RENAME TO "gen_durable_seat_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_seat_cut_off";

CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_seat"
  ON "gen_durable" ("queue", "seat")
  WHERE "seat" IS NOT NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_seat') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_seat was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_seat, then migrate again';
  END IF;
END $$;
