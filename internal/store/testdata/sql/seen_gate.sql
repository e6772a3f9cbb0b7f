SELECT set_config('gendurable.before', coalesce(
  (SELECT jsonb_strip_nulls(to_jsonb(r) - 'updated_at')::text FROM "gendurable".gates r WHERE r.name = $1 FOR NO KEY UPDATE), ''), true)
