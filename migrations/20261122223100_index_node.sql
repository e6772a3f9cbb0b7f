-- atlas:txmode none

-- A node of a graph, by its name: no graph has two of one name.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_node"
  ON "gen_durable" ("parent_id", "parent_round", "node")
  WHERE "node" IS NOT NULL;

-- A build that was cut off leaves an invalid index behind, which IF NOT EXISTS takes for a finished one. The rest replaces such a
-- one, and has nothing to do otherwise.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_node') AND NOT indisvalid)
    AND to_regclass('gen_durable_node_cut_off') IS NULL THEN
    ALTER INDEX "gen_durable_node" RENAME TO "gen_durable_node_cut_off";
  END IF;
END $$;

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_node_cut_off";

CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_node"
  ON "gen_durable" ("parent_id", "parent_round", "node")
  WHERE "node" IS NOT NULL;

DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('gen_durable_node') AND NOT indisvalid) THEN
    RAISE EXCEPTION 'the build of index gen_durable_node was cut off twice: REINDEX INDEX CONCURRENTLY gen_durable_node, then migrate again';
  END IF;
END $$;
