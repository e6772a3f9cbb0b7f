SET LOCAL lock_timeout = '5s';

-- A file as most will be: one transaction that takes its lock for a moment, and rewrites nothing.
ALTER TABLE "gen_durable" ADD COLUMN "toy" text NULL;
