-- atlas:txmode none

-- gen_durable_ready has taken its place.
DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_pick";
