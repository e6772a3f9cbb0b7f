SET LOCAL lock_timeout = '5s';

-- A gate bounds how many instances execute at a time. Workers look here when they poll.
CREATE TABLE "gates" (
  "name" text NOT NULL,
  "queue" text NULL,
  "machine" text NULL,
  "step" text NULL,
  "label" text NULL,
  "places" integer NOT NULL,
  "updated_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("name"),
  -- The name ends at the first slash of an instance's gate.
  CONSTRAINT "gates_names_check" CHECK (
    octet_length("name") BETWEEN 1 AND 64 AND strpos("name", '/') = 0 AND octet_length("queue") BETWEEN 1 AND 512
    AND octet_length("machine") BETWEEN 1 AND 512 AND octet_length("step") BETWEEN 1 AND 512 AND octet_length("label") BETWEEN 1 AND 64
  ),
  CONSTRAINT "gates_places_check" CHECK ("places" BETWEEN 0 AND 10000 AND ("step" IS NULL OR "machine" IS NOT NULL))
);

-- NOT VALID: the rows from before have neither column, and the next file validates them without a lock that stops writers.
ALTER TABLE "gen_durable"
  ADD COLUMN "gate" text NULL,
  ADD COLUMN "place" integer NULL,
  DROP CONSTRAINT "gen_durable_lane_check",
  ADD CONSTRAINT "gen_durable_lane_check" CHECK (
    "pick_lane" BETWEEN 0 AND 3 AND ("pick_lane" <> 1 OR "partition_key" IS NOT NULL) AND ("pick_lane" <> 3 OR "gate" IS NOT NULL)
  ) NOT VALID,
  ADD CONSTRAINT "gen_durable_gate_check" CHECK (
    octet_length("gate") BETWEEN 1 AND 1200 AND ("place" IS NULL OR "place" >= 1 AND "gate" IS NOT NULL)
  ) NOT VALID;
