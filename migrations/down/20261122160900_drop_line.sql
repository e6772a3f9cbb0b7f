-- atlas:txmode none

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_line";

CREATE INDEX CONCURRENTLY "gen_durable_line" ON "gen_durable" ("gate", "queue", "priority", "eligible_at", "id")
  WHERE "status" = 'runnable' AND NOT "paused" AND "pick_lane" = 3;
