INSERT INTO "gendurable".history (at, kind, subject, actor, reason, before, after)
SELECT clock_timestamp(), 'admin.' || $2::text, 'gate ' || $1::text, $3::text, $4::text, b.seen, a.is
FROM (SELECT nullif(current_setting('gendurable.before'), '')::jsonb AS seen) b
LEFT JOIN (SELECT jsonb_strip_nulls(to_jsonb(r) - 'updated_at') AS is, r.xmin = pg_current_xact_id()::xid AS own FROM "gendurable".gates r WHERE r.name = $1) a
  ON true
WHERE coalesce(a.own, b.seen IS NOT NULL)
