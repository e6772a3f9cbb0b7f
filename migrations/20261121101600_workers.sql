SET LOCAL lock_timeout = '5s';

-- Who works: each process writes its row at every heartbeat. Only operators read it; what is executed goes by leases.
CREATE TABLE "workers" (
  "id" uuid NOT NULL,
  "host" text NOT NULL,
  "pid" integer NOT NULL,
  "version" text NOT NULL,
  "queues" jsonb NOT NULL,
  "machines" text[] NOT NULL,
  "draining" boolean NOT NULL DEFAULT false,
  "started_at" timestamptz NOT NULL DEFAULT now(),
  "beat_at" timestamptz NOT NULL DEFAULT now(),
  "expires_at" timestamptz NOT NULL,
  PRIMARY KEY ("id"),
  CONSTRAINT "workers_finite_check" CHECK (isfinite("started_at") AND isfinite("beat_at") AND isfinite("expires_at"))
);
