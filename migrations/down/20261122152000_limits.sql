SET LOCAL lock_timeout = '5s';

UPDATE "gen_durable" SET "pick_lane" = 0, "gate" = NULL WHERE "pick_lane" = 3;

-- Gates that say more than places have no form there.
DELETE FROM "gates" WHERE "places" IS NULL OR "run";

ALTER TABLE "gen_durable"
  DROP COLUMN "seat",
  DROP COLUMN "run_gate",
  DROP COLUMN "run_place";

DROP TABLE "gate_keys";

ALTER TABLE "gates"
  DROP CONSTRAINT "gates_cost_check",
  DROP CONSTRAINT "gates_rates_check",
  DROP CONSTRAINT "gates_places_check",
  DROP COLUMN "run",
  DROP COLUMN "adapt",
  DROP COLUMN "cost_label",
  DROP COLUMN "total_rate_burst",
  DROP COLUMN "total_rate_per",
  DROP COLUMN "total_rate",
  DROP COLUMN "total",
  DROP COLUMN "rate_burst",
  DROP COLUMN "rate_per",
  DROP COLUMN "rate",
  ALTER COLUMN "places" SET NOT NULL,
  ADD CONSTRAINT "gates_places_check" CHECK ("places" BETWEEN 0 AND 10000 AND ("step" IS NULL OR "machine" IS NOT NULL));
