SELECT w.host, w.pid, w.release FROM "gendurable".workers w WHERE w.release < $2::int AND (w.expires_at > (SELECT clock_timestamp())
  OR EXISTS (SELECT FROM pg_catalog.pg_locks k WHERE k.locktype = 'advisory' AND k.mode = 'ShareLock' AND k.granted AND k.objsubid = 1
    AND k.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
    AND (k.classid::bigint << 32) + k.objid::bigint = hashtextextended('gendurable ' || $1::text || ' ' || w.id, 0))) LIMIT 1
