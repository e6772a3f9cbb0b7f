SELECT current_user::text, r.object, r.privilege
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r(object, privilege, n)
JOIN pg_catalog.pg_namespace s ON s.nspname = $3::text
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = r.object AND c.relkind IN ('r', 'p', 'S')
LEFT JOIN pg_catalog.pg_proc f ON f.pronamespace = s.oid AND f.proname = r.object AND r.privilege = 'EXECUTE'
WHERE NOT CASE WHEN r.object = '' THEN has_schema_privilege(s.oid, r.privilege)
  WHEN r.privilege = 'EXECUTE' THEN has_function_privilege(f.oid, r.privilege)
  WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, r.privilege)
  ELSE has_table_privilege(c.oid, r.privilege) END
ORDER BY r.n
