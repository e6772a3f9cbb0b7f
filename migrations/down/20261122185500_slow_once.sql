SET LOCAL lock_timeout = '5s';

ALTER TABLE "gate_keys" DROP COLUMN "slowed_at";
