-- atlas:txmode none

DROP INDEX CONCURRENTLY IF EXISTS "signals_consumed";
