SET LOCAL lock_timeout = '5s';

-- An instance whose step the worker that met it does not know is set aside in lane 4, by the step. NOT VALID: the rows from before
-- hold by what the check said before, and the next file validates them without a lock that stops writers.
ALTER TABLE "gen_durable"
  ADD COLUMN "aside_step" text NULL,
  DROP CONSTRAINT "gen_durable_lane_check",
  ADD CONSTRAINT "gen_durable_lane_check" CHECK (
    "pick_lane" BETWEEN 0 AND 4 AND ("pick_lane" <> 1 OR "partition_key" IS NOT NULL) AND ("pick_lane" <> 3 OR "gate" IS NOT NULL)
    AND ("pick_lane" <> 4 OR "aside_step" IS NOT NULL)
  ) NOT VALID;
