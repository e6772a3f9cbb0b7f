SET LOCAL lock_timeout = '5s';

-- One scan for all, under a lock that stops neither readers nor writers.
ALTER TABLE "gen_durable"
  VALIDATE CONSTRAINT "gen_durable_uid_check",
  VALIDATE CONSTRAINT "gen_durable_scope_check",
  VALIDATE CONSTRAINT "gen_durable_lease_check",
  VALIDATE CONSTRAINT "gen_durable_finite_check",
  VALIDATE CONSTRAINT "gen_durable_names_check",
  VALIDATE CONSTRAINT "gen_durable_awaits_check",
  VALIDATE CONSTRAINT "gen_durable_finished_check",
  VALIDATE CONSTRAINT "gen_durable_failure_check",
  VALIDATE CONSTRAINT "gen_durable_counts_check",
  VALIDATE CONSTRAINT "gen_durable_lane_check",
  VALIDATE CONSTRAINT "gen_durable_labels_check";

ALTER TABLE "signals"
  VALIDATE CONSTRAINT "signals_names_check",
  VALIDATE CONSTRAINT "signals_finite_check";
