SET LOCAL lock_timeout = '5s';

UPDATE "gen_durable" SET "pick_lane" = 0 WHERE "pick_lane" = 4;

ALTER TABLE "gen_durable"
  DROP CONSTRAINT "gen_durable_lane_check",
  DROP COLUMN "aside_step",
  ADD CONSTRAINT "gen_durable_lane_check" CHECK (
    "pick_lane" BETWEEN 0 AND 3 AND ("pick_lane" <> 1 OR "partition_key" IS NOT NULL) AND ("pick_lane" <> 3 OR "gate" IS NOT NULL)
  );
