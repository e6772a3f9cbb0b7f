SELECT EXISTS (SELECT FROM "gendurable".kept_signals), EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = $1 AND c.relname = 'kept_signals' AND has_table_privilege(c.oid, 'DELETE'))
