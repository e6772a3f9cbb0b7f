SELECT pg_advisory_xact_lock(hashtextextended('gendurable gate ' || l.name || ' of ' || $2::text, 0)) FROM (SELECT $1::text AS name) l
