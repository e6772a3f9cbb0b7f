SELECT pg_try_advisory_lock_shared(hashtextextended('gendurable ' || $1::text || ' ' || $2::text, 0))
