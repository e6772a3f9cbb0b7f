SET LOCAL lock_timeout = '5s';

-- Nothing cancels the rest of a round any more: these children go on.
ALTER TABLE "gen_durable" DROP COLUMN "losers";
