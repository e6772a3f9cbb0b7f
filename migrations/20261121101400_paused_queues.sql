SET LOCAL lock_timeout = '5s';

-- A row is there exactly while its queue is paused. Workers look here when they poll, never when they claim.
CREATE TABLE "paused_queues" (
  "queue" text NOT NULL,
  "paused_at" timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("queue"),
  CONSTRAINT "paused_queues_names_check" CHECK (octet_length("queue") BETWEEN 1 AND 512)
);
