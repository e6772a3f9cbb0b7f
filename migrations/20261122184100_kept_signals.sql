SET LOCAL lock_timeout = '5s';

-- How long an instance is kept after its end, where its insert says so, and what its steps have published last.
ALTER TABLE "gen_durable"
  ADD COLUMN "retain" bigint[] NULL,
  ADD COLUMN "progress" jsonb NULL;

-- Signals to correlation keys that nobody occupies yet.
CREATE TABLE "kept_signals" (
  "id" bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  "key" text NOT NULL,
  "name" text NOT NULL,
  "payload" jsonb NOT NULL DEFAULT '{}',
  "dedup_key" text NULL,
  "inserted_at" timestamptz NOT NULL DEFAULT now(),
  "expires_at" timestamptz NOT NULL,
  "trace" jsonb NULL,
  PRIMARY KEY ("id"),
  CONSTRAINT "kept_signals_names_check" CHECK (
    octet_length("key") BETWEEN 1 AND 512 AND octet_length("name") BETWEEN 1 AND 512 AND octet_length("dedup_key") BETWEEN 1 AND 512
  ),
  CONSTRAINT "kept_signals_times_check" CHECK (isfinite("inserted_at") AND isfinite("expires_at"))
);

CREATE UNIQUE INDEX "kept_signals_key" ON "kept_signals" ("key", "dedup_key");

CREATE INDEX "kept_signals_expiry" ON "kept_signals" ("expires_at");
