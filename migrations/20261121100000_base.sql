-- The tables as the reference specification has them. Everything the engine adds comes in the later files, so that this directory is
-- a history which a live database can walk. No file names a schema: the search_path decides.
CREATE TYPE "durable_status" AS ENUM ('runnable', 'executing', 'awaiting_signal', 'awaiting_children', 'done', 'failed');

CREATE TABLE "gen_durable" (
  "id" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  "fsm" text NOT NULL,
  "fsm_version" integer NOT NULL DEFAULT 1,
  "step" text NOT NULL,
  "status" "durable_status" NOT NULL DEFAULT 'runnable',
  "state" jsonb NOT NULL DEFAULT '{}',
  "result" jsonb,
  "awaits" text[],

  "queue" text NOT NULL DEFAULT 'default',
  "priority" smallint NOT NULL DEFAULT 0,
  "partition_key" text,
  "eligible_at" timestamptz NOT NULL DEFAULT now(),
  "attempt" integer NOT NULL DEFAULT 0,
  "last_error" text,

  "locked_by" text,
  "lease_expires_at" timestamptz,

  "parent_id" bigint REFERENCES "gen_durable" ("id") ON DELETE SET NULL,
  "children_pending" integer NOT NULL DEFAULT 0,

  "correlation_key" text,
  -- An array of the enum, not of text: a generated column must be immutable, and the cast from an enum to text is not.
  "correlation_scope" "durable_status"[] NOT NULL DEFAULT '{}',
  "correlation_guard" text GENERATED ALWAYS AS (
    CASE WHEN "correlation_key" IS NOT NULL AND "status" = ANY ("correlation_scope") THEN "correlation_key" END
  ) STORED,

  "inserted_at" timestamptz NOT NULL DEFAULT now(),
  "updated_at" timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX "gen_durable_pick" ON "gen_durable" ("queue", "priority", "eligible_at") WHERE "status" = 'runnable';

CREATE INDEX "gen_durable_lease" ON "gen_durable" ("lease_expires_at") WHERE "status" = 'executing';

CREATE UNIQUE INDEX "gen_durable_correlation" ON "gen_durable" ("correlation_guard") WHERE "correlation_guard" IS NOT NULL;

CREATE INDEX "gen_durable_parent" ON "gen_durable" ("parent_id") WHERE "parent_id" IS NOT NULL;

CREATE TABLE "signals" (
  "id" bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  "target_id" bigint NOT NULL REFERENCES "gen_durable" ("id") ON DELETE CASCADE,
  "name" text NOT NULL,
  "payload" jsonb NOT NULL DEFAULT '{}',
  "dedup_key" text,
  "inserted_at" timestamptz NOT NULL DEFAULT now(),
  UNIQUE ("target_id", "dedup_key")
);

CREATE INDEX "signals_target" ON "signals" ("target_id", "name");
