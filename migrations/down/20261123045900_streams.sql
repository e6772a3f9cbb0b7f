SET LOCAL lock_timeout = '5s';

-- A parent of a stream waits for a whole round, with the policy that it had. Its rounds become those of any other.
UPDATE "gen_durable" SET "round" = abs("round"), "parent_round" = abs("parent_round"),
  "losers" = (SELECT array_agg(abs(l.r)) FROM unnest("losers") AS l(r)) WHERE "round" < 0 OR "parent_round" < 0;
ALTER TABLE "gen_durable" DROP COLUMN "stream_most", DROP COLUMN "stream_nth", DROP COLUMN "stream_visit";
