SET LOCAL lock_timeout = '5s';

-- A gate also bounds how many begin in a period, what all values of its label do together, and whole runs. Without places, it bounds
-- only that.
ALTER TABLE "gates"
  ALTER COLUMN "places" DROP NOT NULL,
  ADD COLUMN "rate" integer NULL,
  ADD COLUMN "rate_per" bigint NULL,
  ADD COLUMN "rate_burst" integer NULL,
  ADD COLUMN "total" integer NULL,
  ADD COLUMN "total_rate" integer NULL,
  ADD COLUMN "total_rate_per" bigint NULL,
  ADD COLUMN "total_rate_burst" integer NULL,
  ADD COLUMN "cost_label" text NULL,
  ADD COLUMN "adapt" boolean NOT NULL DEFAULT false,
  ADD COLUMN "run" boolean NOT NULL DEFAULT false,
  DROP CONSTRAINT "gates_places_check",
  ADD CONSTRAINT "gates_places_check" CHECK (
    "places" BETWEEN 0 AND 10000 AND "total" BETWEEN 0 AND 10000 AND ("step" IS NULL OR "machine" IS NOT NULL)
  ),
  ADD CONSTRAINT "gates_rates_check" CHECK (
    num_nonnulls("rate", "rate_per", "rate_burst") IN (0, 3) AND "rate" BETWEEN 1 AND 1000000
    AND "rate_per" BETWEEN 1000 AND 31536000000000 AND "rate_burst" BETWEEN 1 AND 1000000
    AND num_nonnulls("total_rate", "total_rate_per", "total_rate_burst") IN (0, 3) AND "total_rate" BETWEEN 1 AND 1000000
    AND "total_rate_per" BETWEEN 1000 AND 31536000000000 AND "total_rate_burst" BETWEEN 1 AND 1000000
  ),
  ADD CONSTRAINT "gates_cost_check" CHECK (octet_length("cost_label") BETWEEN 1 AND 64);

-- What is known of one value of a gate's label, and of a gate itself. Claims that pay for a rate update it, always the same rows.
CREATE TABLE "gate_keys" (
  "key" text NOT NULL,
  "debt" double precision NOT NULL DEFAULT 0,
  "at" timestamptz NOT NULL DEFAULT now(),
  "pace" double precision NOT NULL DEFAULT 1,
  "closed_until" timestamptz NULL,
  "weight" integer NOT NULL DEFAULT 1,
  PRIMARY KEY ("key"),
  CONSTRAINT "gate_keys_check" CHECK (
    octet_length("key") BETWEEN 1 AND 1200 AND "weight" BETWEEN 1 AND 100 AND "debt" >= 0 AND "debt" <= 1e12
    AND "pace" > 0 AND "pace" <= 1 AND isfinite("at") AND isfinite("closed_until")
  )
) WITH (fillfactor = 50);

ALTER TABLE "gen_durable"
  ADD COLUMN "seat" integer NULL,
  ADD COLUMN "run_gate" text NULL,
  ADD COLUMN "run_place" integer NULL;
