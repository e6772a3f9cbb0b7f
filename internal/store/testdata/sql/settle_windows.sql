UPDATE "gendurable".windows w SET instance = u.id,
  opened_at = CASE WHEN w.name LIKE 'debounce:%' THEN clock_timestamp() ELSE w.opened_at END
FROM unnest($1::text[], $2::bigint[]) AS u(name, id) WHERE w.name = u.name
