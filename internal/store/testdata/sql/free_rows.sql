SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL AND a.state = 'active' AND a.wait_event = 'ClientRead'
  AND a.state_change < pg_catalog.clock_timestamp() - $2::bigint * interval '1 microsecond'
  AND strpos(a.query, $1::text) > 0 AND EXISTS (
    SELECT FROM pg_locks k WHERE k.pid = a.pid AND k.locktype = 'relation' AND k.relation = to_regclass($1::text || 'gen_durable')
      AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND k.mode IN ('RowShareLock', 'RowExclusiveLock'))
