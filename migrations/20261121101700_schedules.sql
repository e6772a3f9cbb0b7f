SET LOCAL lock_timeout = '5s';

-- What inserts an instance at each of its occurrences. Whoever fires one locks its row, inserts and moves next_at in one transaction; the
-- instance's correlation key, which names the occurrence, is the last line.
CREATE TABLE "schedules" (
  "name" text NOT NULL,
  "spec" jsonb NOT NULL,
  "expression" text NOT NULL,
  "time_zone" text NOT NULL DEFAULT 'UTC',
  "catch_up" text NOT NULL DEFAULT 'latest',
  "overlap" text NOT NULL DEFAULT 'allow',
  "jitter" bigint NOT NULL DEFAULT 0,
  "next_at" timestamptz NOT NULL,
  "last_at" timestamptz NULL,
  "last_instance" bigint NULL,
  "paused_at" timestamptz NULL,
  "updated_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("name"),
  CONSTRAINT "schedules_names_check" CHECK (octet_length("name") BETWEEN 1 AND 256 AND octet_length("expression") BETWEEN 1 AND 512
    AND octet_length("time_zone") BETWEEN 1 AND 512),
  CONSTRAINT "schedules_policy_check" CHECK ("catch_up" IN ('none', 'latest', 'all') AND "overlap" IN ('allow', 'skip') AND "jitter" >= 0),
  CONSTRAINT "schedules_finite_check" CHECK (isfinite("next_at") AND isfinite("last_at") AND isfinite("paused_at")
    AND jsonb_typeof("spec") = 'object')
);
CREATE INDEX "schedules_due" ON "schedules" ("next_at") WHERE "paused_at" IS NULL;
