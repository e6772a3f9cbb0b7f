SET LOCAL lock_timeout = '5s';

-- The rounds of children whose rest is to be cancelled, oldest first: see internal/store/sweep_rest.go. NULL: none.
ALTER TABLE "gen_durable" ADD COLUMN "losers" bigint[] NULL;
