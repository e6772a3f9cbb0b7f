SET LOCAL lock_timeout = '5s';

ALTER TABLE "gen_durable"
  ALTER COLUMN "uid" DROP DEFAULT,
  DROP CONSTRAINT "gen_durable_uid_check",
  DROP CONSTRAINT "gen_durable_scope_check",
  DROP CONSTRAINT "gen_durable_lease_check",
  DROP CONSTRAINT "gen_durable_finite_check",
  DROP CONSTRAINT "gen_durable_names_check",
  DROP CONSTRAINT "gen_durable_awaits_check",
  DROP CONSTRAINT "gen_durable_finished_check",
  DROP CONSTRAINT "gen_durable_failure_check",
  DROP CONSTRAINT "gen_durable_counts_check",
  DROP CONSTRAINT "gen_durable_lane_check",
  DROP CONSTRAINT "gen_durable_labels_check";

ALTER TABLE "signals"
  DROP CONSTRAINT "signals_names_check",
  DROP CONSTRAINT "signals_finite_check";
