SET LOCAL lock_timeout = '5s';

-- The name of an instance that is a node of its parent's graph.
ALTER TABLE "gen_durable" ADD COLUMN "node" text NULL;

-- What nodes wait for. An edge has no foreign key: the sweep that deletes a node deletes those that lead away from it. needs: 0 the
-- origin is to be done, 1 to have ended, 2 to have failed.
CREATE TABLE "edges" (
  "from_id" bigint NOT NULL,
  "to_id" bigint NOT NULL,
  "needs" smallint NOT NULL,
  PRIMARY KEY ("from_id", "to_id"),
  CONSTRAINT "edges_needs_check" CHECK ("needs" BETWEEN 0 AND 2)
);
CREATE INDEX "edges_to" ON "edges" ("to_id");

-- A worker of a release that knows no graphs would end a node without telling those that wait for it.
ALTER TABLE "workers" ADD COLUMN "graphs" boolean NOT NULL DEFAULT false;
