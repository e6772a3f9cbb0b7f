-- atlas:txmode none

CREATE INDEX CONCURRENTLY IF NOT EXISTS "gen_durable_pick" ON "gen_durable" ("queue", "priority", "eligible_at")
  WHERE "status" = 'runnable';
