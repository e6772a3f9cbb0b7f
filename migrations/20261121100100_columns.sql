-- A queue behind a lock request waits too: rather fail soon, and be run again, than stop the traffic behind one long transaction.
SET LOCAL lock_timeout = '5s';

-- Constant defaults, so no row is rewritten. uid has none yet: NULL marks the rows that the backfill still has to visit.
ALTER TABLE "gen_durable"
  ADD COLUMN "uid" uuid,
  ADD COLUMN "claim_token" bigint NOT NULL DEFAULT 0,
  ADD COLUMN "visit" bigint NOT NULL DEFAULT 0,
  ADD COLUMN "crashes" integer NOT NULL DEFAULT 0,
  ADD COLUMN "commit_id" uuid,
  ADD COLUMN "failure" text,
  ADD COLUMN "finished_at" timestamptz,
  ADD COLUMN "await_deadline" timestamptz,
  ADD COLUMN "timed_out" boolean NOT NULL DEFAULT false,
  ADD COLUMN "round" bigint NOT NULL DEFAULT 0,
  ADD COLUMN "parent_round" bigint NOT NULL DEFAULT 0,
  ADD COLUMN "joined" uuid,
  ADD COLUMN "dropped" jsonb,
  ADD COLUMN "depth" integer NOT NULL DEFAULT 0,
  ADD COLUMN "pick_lane" smallint NOT NULL DEFAULT 0,
  ADD COLUMN "paused" boolean NOT NULL DEFAULT false,
  ADD COLUMN "deadline" timestamptz,
  ADD COLUMN "labels" jsonb,
  ADD COLUMN "trace" jsonb,
  ADD COLUMN "errors" jsonb;

ALTER TABLE "signals"
  ADD COLUMN "consumed_at" timestamptz,
  ADD COLUMN "trace" jsonb;

-- Claim tokens grow across all instances, so that they also order the holders of one partition key. CACHE 1: a session that cached a
-- range would hand out smaller tokens later. Owned, so that it goes when the table goes.
CREATE SEQUENCE "gen_durable_token" AS bigint CACHE 1 OWNED BY "gen_durable"."claim_token";

-- A commit that keeps its claim changes no indexed column; room left in its page keeps that update heap-only, at half the write cost.
ALTER TABLE "gen_durable" SET (fillfactor = 75);

-- Queues turn their rows over many times an hour, and dead entries at the front of the pick index cost every pick until they are
-- vacuumed. The default of a fifth of the table is far too late for a table that also keeps finished rows. The threshold spares small
-- tables; without a delay a vacuum is over before as much has died again.
ALTER TABLE "gen_durable" SET (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_analyze_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

ALTER TABLE "signals" SET (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0.05,
  autovacuum_analyze_scale_factor = 0.02,
  autovacuum_analyze_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
