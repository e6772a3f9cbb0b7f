package entpgx

import (
	stdsql "database/sql"
	"errors"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
)

// rows presents a native result, whose first row was read already, as ent wants it.
type rows struct {
	pgx.Rows
	columns []string
	peeked  bool // Next still has to return first
	first   bool
}

// peek reads the first row. If there is none, the result closes, and its connection may have
// another user at once. So peek reads the result's description before.
func peek(found pgx.Rows) *rows {
	fields := found.FieldDescriptions()
	r := &rows{Rows: found, columns: make([]string, len(fields)), peeked: true}
	for i, field := range fields {
		r.columns[i] = field.Name
	}
	r.first = found.Next()
	return r
}

var _ entsql.ColumnScanner = (*rows)(nil)

func (r *rows) Next() bool {
	if r.peeked {
		r.peeked = false
		return r.first
	}
	return r.Rows.Next()
}

func (r *rows) Close() error {
	r.Rows.Close()
	return r.Err()
}

func (r *rows) Columns() ([]string, error) { return r.columns, nil }

// ColumnTypes always fails, since the standard library's type cannot be made outside of it. ent
// then scans columns that it does not know into any.
func (r *rows) ColumnTypes() ([]*stdsql.ColumnType, error) {
	return nil, errors.New("a native result has no column types of database/sql")
}

func (r *rows) NextResultSet() bool { return false }
