SET LOCAL lock_timeout = '5s';

UPDATE "gen_durable" SET "pick_lane" = 0 WHERE "pick_lane" = 3;

ALTER TABLE "gen_durable"
  DROP CONSTRAINT "gen_durable_gate_check",
  DROP CONSTRAINT "gen_durable_lane_check",
  DROP COLUMN "place",
  DROP COLUMN "gate",
  ADD CONSTRAINT "gen_durable_lane_check" CHECK (
    "pick_lane" BETWEEN 0 AND 2 AND ("pick_lane" <> 1 OR "partition_key" IS NOT NULL)
  );

DROP TABLE "gates";
