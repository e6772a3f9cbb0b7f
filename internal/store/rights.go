package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Right is a privilege on a table, a sequence or a function of the schema. If Object is empty, it
// is a privilege on the schema itself.
type Right struct{ Object, Privilege string }

// rightsSQL returns the given rights that the session's role lacks, in their order. It reads the
// catalog, since only a role with the right to use the schema may resolve names in it. A role does
// not lack rights on objects that do not exist. $1 objects $2 privileges $3 schema
var rightsSQL = named("rights", `SELECT current_user::text, r.object, r.privilege
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r(object, privilege, n)
JOIN pg_catalog.pg_namespace s ON s.nspname = $3::text
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = s.oid AND c.relname = r.object AND c.relkind IN ('r', 'p', 'S')
LEFT JOIN pg_catalog.pg_proc f ON f.pronamespace = s.oid AND f.proname = r.object AND r.privilege = 'EXECUTE'
WHERE NOT CASE WHEN r.object = '' THEN has_schema_privilege(s.oid, r.privilege)
  WHEN r.privilege = 'EXECUTE' THEN has_function_privilege(f.oid, r.privilege)
  WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, r.privilege)
  ELSE has_table_privilege(c.oid, r.privilege) END
ORDER BY r.n`)

// Lacking returns those rights that the connections' role does not have, and the role's name, which
// is empty if it lacks none.
func (s *Store) Lacking(ctx context.Context, rights []Right) (role string, lacking []Right, err error) {
	objects, privileges := make([]string, len(rights)), make([]string, len(rights))
	for i, r := range rights {
		objects[i], privileges[i] = r.Object, r.Privilege
	}
	err = s.one(ctx, fastLock, rightsSQL, func(rows pgx.Rows) error {
		for rows.Next() {
			var r Right
			if err := rows.Scan(&role, &r.Object, &r.Privilege); err != nil {
				return err
			}
			lacking = append(lacking, r)
		}
		return rows.Err()
	}, objects, privileges, s.schema)
	if err != nil {
		return "", nil, err
	}
	return role, lacking, nil
}
