package entpgx

import (
	stdsql "database/sql"
	"errors"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
)

// rows presents a native result, whose first row has been looked for already, as ent wants it.
type rows struct {
	pgx.Rows
	columns []string
	peeked  bool // Next has to answer with first
	first   bool
}

// peek looks for the first row. A result without any closes by that, and its connection is somebody else's at once: what the result says of
// itself has to be known before.
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

// ColumnTypes always fails, and ent then scans columns it does not know into any; the standard library's type cannot be
// made outside of it.
func (r *rows) ColumnTypes() ([]*stdsql.ColumnType, error) {
	return nil, errors.New("a native result has no column types of database/sql")
}

func (r *rows) NextResultSet() bool { return false }
