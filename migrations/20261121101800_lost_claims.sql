SET LOCAL lock_timeout = '5s';

-- Claims with a partition key that were taken away from a worker whose step may still run: the next of the key waits for it. Almost always
-- empty.
CREATE TABLE "lost_claims" (
  "id" uuid NOT NULL DEFAULT gen_random_uuid(),
  "partition_key" text NOT NULL,
  "worker" text NOT NULL,
  "claim_token" bigint NOT NULL,
  "lost_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("id"),
  CONSTRAINT "lost_claims_finite_check" CHECK (isfinite("lost_at"))
);
CREATE INDEX "lost_claims_key" ON "lost_claims" ("partition_key");
