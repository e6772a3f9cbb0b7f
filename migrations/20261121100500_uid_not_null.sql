SET LOCAL lock_timeout = '5s';

-- The validated check proves that there is no NULL, so SET NOT NULL does not scan the table under its exclusive lock.
ALTER TABLE "gen_durable" ALTER COLUMN "uid" SET NOT NULL;

ALTER TABLE "gen_durable" DROP CONSTRAINT "gen_durable_uid_check";
