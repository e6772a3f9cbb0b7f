-- atlas:txmode none

-- gen_durable_lines has taken its place.
DROP INDEX CONCURRENTLY IF EXISTS "gen_durable_line";
