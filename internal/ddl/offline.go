package ddl

import (
	"context"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
)

// offline is a driver without a database. To describe its tables, ent asks it only for the server's
// version, from which it concludes here that generated columns and identities exist.
type offline struct{ dialect.Driver }

func (offline) Dialect() string { return dialect.Postgres }

func (offline) Query(_ context.Context, query string, _, v any) error {
	rows, ok := v.(*entsql.Rows)
	if !ok {
		return fmt.Errorf("query %q: unexpected destination %T", query, v)
	}
	rows.ColumnScanner = &versionRow{}
	return nil
}

// versionRow is a result of one row: the version of Postgres 15.
type versionRow struct {
	entsql.ColumnScanner
	read bool
}

func (r *versionRow) Next() bool {
	first := !r.read
	r.read = true
	return first
}

func (r *versionRow) Scan(dest ...any) error {
	version, ok := dest[0].(*string)
	if !ok {
		return fmt.Errorf("scan the server version: unexpected destination %T", dest[0])
	}
	*version = "150000"
	return nil
}

func (*versionRow) Err() error   { return nil }
func (*versionRow) Close() error { return nil }
