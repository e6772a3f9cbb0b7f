-- atlas:txmode none

DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_toy";
