SET LOCAL lock_timeout = '5s';

-- Rows that could wedge the engine become impossible. NOT VALID: new and changed rows are held to the checks from here on, those from
-- before are brought in line by the next file and validated by the one after it, without a lock that stops writers. Where a NULL could
-- slip through, coalesce is in the way: a CHECK passes what is unknown.
ALTER TABLE "gen_durable"
  ADD CONSTRAINT "gen_durable_uid_check" CHECK ("uid" IS NOT NULL) NOT VALID,
  -- Any other subset lets a mere status change collide with another instance, which wedges the pick or the reaper of a whole queue.
  ADD CONSTRAINT "gen_durable_scope_check" CHECK (
    "correlation_scope" = '{}' OR "correlation_scope" @> '{runnable,executing,awaiting_signal,awaiting_children}'
  ) NOT VALID,
  -- The reaper finds an executing instance by its lease alone.
  ADD CONSTRAINT "gen_durable_lease_check" CHECK (
    "status" <> 'executing' OR ("locked_by" IS NOT NULL AND "lease_expires_at" IS NOT NULL)
  ) NOT VALID,
  -- An infinite time does not scan into a Go time: it would break the loop that meets it.
  ADD CONSTRAINT "gen_durable_finite_check" CHECK (
    isfinite("eligible_at") AND isfinite("lease_expires_at") AND isfinite("await_deadline") AND isfinite("finished_at")
    AND isfinite("deadline")
  ) NOT VALID,
  -- The index of the labels serves objects only, and a step could not read anything else.
  ADD CONSTRAINT "gen_durable_labels_check" CHECK (jsonb_typeof("labels") = 'object') NOT VALID,
  -- Longer names may not fit an index entry.
  ADD CONSTRAINT "gen_durable_names_check" CHECK (
    octet_length("fsm") BETWEEN 1 AND 512
    AND octet_length("step") BETWEEN 1 AND 512
    AND octet_length("queue") BETWEEN 1 AND 512
    AND octet_length("partition_key") BETWEEN 1 AND 512
    AND octet_length("correlation_key") BETWEEN 1 AND 512
    AND "fsm_version" >= 1
  ) NOT VALID,
  -- Nothing could ever wake an instance that awaits no name.
  ADD CONSTRAINT "gen_durable_awaits_check" CHECK (
    "status" <> 'awaiting_signal' OR (coalesce(cardinality("awaits"), 0) > 0 AND array_position("awaits", NULL) IS NULL)
  ) NOT VALID,
  ADD CONSTRAINT "gen_durable_finished_check" CHECK (("status" IN ('done', 'failed')) = ("finished_at" IS NOT NULL)) NOT VALID,
  ADD CONSTRAINT "gen_durable_failure_check" CHECK (("status" = 'failed') = ("failure" IS NOT NULL)) NOT VALID,
  ADD CONSTRAINT "gen_durable_counts_check" CHECK (
    "children_pending" >= 0 AND "attempt" >= 0 AND "crashes" >= 0 AND "visit" >= 0 AND "depth" BETWEEN 0 AND 100
  ) NOT VALID,
  -- What no key holds back would be hidden behind its key for good.
  ADD CONSTRAINT "gen_durable_lane_check" CHECK (
    "pick_lane" BETWEEN 0 AND 2 AND ("pick_lane" <> 1 OR "partition_key" IS NOT NULL)
  ) NOT VALID,
  -- In the transaction of the checks: a row with a uid has passed them all.
  ALTER COLUMN "uid" SET DEFAULT gen_random_uuid();

ALTER TABLE "signals"
  ADD CONSTRAINT "signals_names_check" CHECK (
    octet_length("name") BETWEEN 1 AND 512 AND octet_length("dedup_key") BETWEEN 1 AND 512
  ) NOT VALID,
  ADD CONSTRAINT "signals_finite_check" CHECK (isfinite("consumed_at")) NOT VALID;
