SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.xact_start IS NOT NULL AND a.state = 'active' AND a.wait_event = 'ClientRead'
  AND a.state_change < clock_timestamp() - interval '3 s' AND EXISTS (
    SELECT FROM pg_locks k JOIN "gendurable".gates r ON (k.classid::bigint << 32 | k.objid::bigint) = hashtextextended('gendurable gate ' || r.name || ' of ' || $1::text, 0)
    WHERE k.pid = a.pid AND k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted)
