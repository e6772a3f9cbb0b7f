SET LOCAL lock_timeout = '5s';

ALTER TABLE "gen_durable" ADD CONSTRAINT "gen_durable_uid_check" CHECK ("uid" IS NOT NULL) NOT VALID;

ALTER TABLE "gen_durable" ALTER COLUMN "uid" DROP NOT NULL;
