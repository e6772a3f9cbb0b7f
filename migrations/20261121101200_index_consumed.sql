-- atlas:txmode none

-- Tombstones of one instance, oldest first: they are capped.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "signals_consumed"
  ON "signals" ("target_id", "consumed_at")
  WHERE "consumed_at" IS NOT NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('signals_consumed') AND NOT indisvalid)
    AND to_regclass('signals_consumed_cut_off') IS NULL THEN
    ALTER INDEX "signals_consumed" RENAME TO "signals_consumed_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "signals_consumed_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "signals_consumed"
  ON "signals" ("target_id", "consumed_at")
  WHERE "consumed_at" IS NOT NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('signals_consumed') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index signals_consumed was cut off twice: REINDEX INDEX CONCURRENTLY signals_consumed, then migrate again';
  END IF;
END $$;
