package entpgx

import (
	stdsql "database/sql"
	"slices"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rows presents a native result, whose first row was read already, as ent wants it.
type rows struct {
	pgx.Rows
	fields []pgconn.FieldDescription
	peeked bool // Next still has to return first
	first  bool
	types  []*stdsql.ColumnType // nil until somebody asks
}

// peek reads the first row. If there is none, the result closes, and its connection may have
// another user at once. So peek copies the result's description before.
func peek(found pgx.Rows) *rows {
	r := &rows{Rows: found, fields: slices.Clone(found.FieldDescriptions()), peeked: true}
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

func (r *rows) Columns() ([]string, error) {
	names := make([]string, len(r.fields))
	for i, field := range r.fields {
		names[i] = field.Name
	}
	return names, nil
}

// ColumnTypes returns the types of the columns, which only rows of database/sql can make. ent asks
// for each row, and each column that it does not know.
func (r *rows) ColumnTypes() ([]*stdsql.ColumnType, error) {
	if r.types != nil {
		return r.types, nil
	}
	standard, err := (&rows{Rows: nothing{}, fields: r.fields}).standard() //nolint:rowserrcheck // there are none
	if err != nil {
		return nil, err
	}
	defer standard.Close()
	r.types, err = standard.ColumnTypes()
	return r.types, err
}

// nothing are rows without a row.
type nothing struct{ pgx.Rows }

func (nothing) Next() bool { return false }
func (nothing) Close()     {}
func (nothing) Err() error { return nil }

func (r *rows) NextResultSet() bool { return false }
