-- atlas:txmode none

-- For whoever looks for labels; instances without any are not in it.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_labels"
  ON "gen_durable" USING gin ("labels" jsonb_path_ops)
  WHERE "labels" IS NOT NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_labels') AND NOT indisvalid)
    AND to_regclass('gen_durable_labels_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_labels" RENAME TO "gen_durable_labels_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_labels_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_labels"
  ON "gen_durable" USING gin ("labels" jsonb_path_ops)
  WHERE "labels" IS NOT NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_labels') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_labels was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_labels, then migrate again';
  END IF;
END $$;
