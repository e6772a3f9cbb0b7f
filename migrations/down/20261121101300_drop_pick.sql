-- atlas:txmode none

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_pick";

CREATE INDEX CONCURRENTLY "gen_durable_pick" ON "gen_durable" ("queue", "priority", "eligible_at")
  WHERE "status" = 'runnable';
