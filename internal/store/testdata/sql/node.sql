SELECT coalesce((SELECT m.metadata->>'server_id' FROM pg_catalog.pg_dist_node_metadata m LIMIT 1), ''),
current_database()::text, current_user::text, coalesce((SELECT l.groupid FROM pg_catalog.pg_dist_local_group l LIMIT 1), 0)
