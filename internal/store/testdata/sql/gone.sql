SELECT pg_advisory_unlock_shared(hashtextextended('gendurable ' || $1::text || ' ' || $2::text, 0))
