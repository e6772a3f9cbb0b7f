-- atlas:txmode none

-- By it the GC finds instances whose own retention has ended.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_retained"
  ON "gen_durable" ((timezone('UTC', finished_at)
    + least(CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END, 3162240000000000)
    * interval '00:00:00.000001'))
  WHERE (finished_at IS NOT NULL
    AND CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END >= 0);

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_retained') AND NOT indisvalid)
    AND to_regclass('gen_durable_retained_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_retained" RENAME TO "gen_durable_retained_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_retained_cut_off";

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_retained"
  ON "gen_durable" ((timezone('UTC', finished_at)
    + least(CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END, 3162240000000000)
    * interval '00:00:00.000001'))
  WHERE (finished_at IS NOT NULL
    AND CASE WHEN status = 'done' THEN retain[1] WHEN failure = 'cancelled' AND retain[3] >= 0 THEN retain[3] ELSE retain[2] END >= 0);

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_retained') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_retained was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_retained, then migrate again';
  END IF;
END $$;
