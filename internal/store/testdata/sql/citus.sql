SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_shard') IS NOT NULL
