SET LOCAL lock_timeout = '5s';

ALTER TABLE "gen_durable" DROP COLUMN "toy";
