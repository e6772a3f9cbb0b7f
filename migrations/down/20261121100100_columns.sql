SET LOCAL lock_timeout = '5s';

-- Tombstones have no place in version 1: there they would be signals again.
DELETE FROM "signals" WHERE "consumed_at" IS NOT NULL;

ALTER TABLE "signals" DROP COLUMN "consumed_at", DROP COLUMN "trace";

-- The sequence of the tokens goes with its column.
ALTER TABLE "gen_durable"
  DROP COLUMN "uid",
  DROP COLUMN "claim_token",
  DROP COLUMN "visit",
  DROP COLUMN "crashes",
  DROP COLUMN "commit_id",
  DROP COLUMN "failure",
  DROP COLUMN "finished_at",
  DROP COLUMN "await_deadline",
  DROP COLUMN "timed_out",
  DROP COLUMN "round",
  DROP COLUMN "parent_round",
  DROP COLUMN "joined",
  DROP COLUMN "dropped",
  DROP COLUMN "depth",
  DROP COLUMN "pick_lane",
  DROP COLUMN "paused",
  DROP COLUMN "deadline",
  DROP COLUMN "labels",
  DROP COLUMN "trace",
  DROP COLUMN "errors";

ALTER TABLE "gen_durable" RESET (
  fillfactor,
  autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_insert_scale_factor,
  autovacuum_analyze_scale_factor, autovacuum_analyze_threshold, autovacuum_vacuum_cost_delay
);

ALTER TABLE "signals" RESET (
  autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_insert_scale_factor,
  autovacuum_analyze_scale_factor, autovacuum_analyze_threshold, autovacuum_vacuum_cost_delay
);
