SET LOCAL lock_timeout = '5s';

DROP TABLE "kept_signals";

ALTER TABLE "gen_durable"
  DROP COLUMN "progress",
  DROP COLUMN "retain";
