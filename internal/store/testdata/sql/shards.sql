SELECT c.relname::text, d.shardid FROM pg_catalog.pg_dist_shard d JOIN pg_catalog.pg_class c ON c.oid = d.logicalrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1::text
