SELECT FROM generate_series(1, 1000) AS i
WHERE pg_try_advisory_xact_lock(hashtextextended('gendurable turn ' || $1::text || ' ' || $2::text, 0))
  OR clock_timestamp() >= statement_timestamp() + $3::bigint * interval '1 microsecond'
  OR pg_sleep(least(i, 10) / 1000.0) IS NULL
LIMIT 1
