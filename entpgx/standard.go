package entpgx

import (
	"bytes"
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// builders are how the queries begin that ent's generated code and its SQL builder write. Their
// results stay native.
var builders = []string{
	`SELECT "`, `SELECT DISTINCT `, `SELECT COUNT(`, `SELECT SUM(`, `SELECT MIN(`, `SELECT MAX(`, `SELECT AVG(`,
	`INSERT `, `UPDATE `, `DELETE `, `WITH `,
}

// ofBuilder reports whether a query looks like one of ent's builders. Any other one may come from
// ent's migration (Schema.Create), which panics unless its result is a *sql.Rows. To everybody else
// both kinds of results are the same.
func ofBuilder(query string) bool {
	for _, start := range builders {
		if strings.HasPrefix(query, start) {
			return true
		}
	}
	return false
}

// QueryContext runs a query, and returns its rows as database/sql's. ent's clients offer it to
// hosts by the feature sql/execquery.
func (q queries) QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error) {
	if q.asked(ctx) {
		return nil, errAsked
	}
	peeked, err := q.query(ctx, query, args)
	if err != nil {
		return nil, constraint(err)
	}
	return peeked.standard()
}

// ExecContext runs a statement, and returns how many rows it affected. ent's clients offer it to
// hosts by the feature sql/execquery.
func (q queries) ExecContext(ctx context.Context, query string, args ...any) (stdsql.Result, error) {
	tag, err := q.exec(ctx, query, args)
	if err != nil {
		return nil, constraint(err)
	}
	return affected(tag.RowsAffected()), nil
}

// standard turns the rows into rows of database/sql, which only a *sql.DB can make. So they get a
// new one, whose only connection returns them to its only query, and which ends with them. The
// context of the native query bounds them as before.
func (r *rows) standard() (*stdsql.Rows, error) {
	of := &result{rows: r}
	of.db = stdsql.OpenDB(handover{of})
	found, err := of.db.QueryContext(context.Background(), "")
	if err != nil {
		return nil, errors.Join(err, of.Close())
	}
	return found, nil
}

// handover is the connector, the driver and the connection of that database.
type handover struct{ result *result }

var (
	_ driver.Connector      = handover{}
	_ driver.QueryerContext = handover{}

	errOneQuery = errors.New("this connection has one query, which has run")
)

// Connect returns the connection.
func (h handover) Connect(context.Context) (driver.Conn, error) { return h, nil }

// Driver returns the driver.
func (h handover) Driver() driver.Driver { return h }

// Open always fails.
func (handover) Open(string) (driver.Conn, error) { return nil, errOneQuery }

// Prepare always fails.
func (handover) Prepare(string) (driver.Stmt, error) { return nil, errOneQuery }

// Begin always fails.
func (handover) Begin() (driver.Tx, error) { return nil, errOneQuery }

// Close does nothing: the native rows hold the real connection.
func (handover) Close() error { return nil }

// QueryContext returns the result.
func (h handover) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return h.result, nil
}

// result presents native rows to database/sql.
type result struct {
	rows *rows
	db   *stdsql.DB
}

var (
	_ driver.RowsColumnTypeDatabaseTypeName = (*result)(nil)
	_ driver.RowsColumnTypeScanType         = (*result)(nil)
)

// Columns returns the names of the columns.
func (r *result) Columns() []string {
	names, _ := r.rows.Columns() // it never fails
	return names
}

// known are the types that pgx knows on any connection.
var known = sync.OnceValue(pgtype.NewMap)

// ColumnTypeDatabaseTypeName returns the name of a column's type, e.g. TEXT; its number where pgx
// does not know it.
func (r *result) ColumnTypeDatabaseTypeName(i int) string {
	oid := r.rows.fields[i].DataTypeOID
	if t, ok := known().TypeForOID(oid); ok {
		return strings.ToUpper(t.Name)
	}
	return strconv.FormatUint(uint64(oid), 10)
}

// ColumnTypeScanType returns the type that a column's values have, as pgx' driver of database/sql
// does.
func (r *result) ColumnTypeScanType(i int) reflect.Type {
	switch r.rows.fields[i].DataTypeOID {
	case pgtype.BoolOID:
		return reflect.TypeFor[bool]()
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return reflect.TypeFor[int64]()
	case pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID:
		return reflect.TypeFor[float64]()
	case pgtype.ByteaOID:
		return reflect.TypeFor[[]byte]()
	case pgtype.TimestamptzOID, pgtype.TimestampOID, pgtype.DateOID:
		return reflect.TypeFor[time.Time]()
	default:
		return reflect.TypeFor[string]()
	}
}

// Close closes the native rows, and the database that was made for them.
func (r *result) Close() error { return errors.Join(r.rows.Close(), r.db.Close()) }

// Next reads the next row.
func (r *result) Next(into []driver.Value) (err error) {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	types := r.rows.Conn().TypeMap()
	for i, raw := range r.rows.RawValues() {
		if into[i], err = value(types, r.rows.fields[i], raw); err != nil {
			return err
		}
	}
	return nil
}

// value converts what the server sent to the type that database/sql has for it.
func value(types *pgtype.Map, field pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	if raw == nil {
		return nil, nil
	}
	switch field.DataTypeOID {
	case pgtype.BoolOID:
		return scanned[bool](types, field, raw)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return scanned[int64](types, field, raw)
	case pgtype.Float4OID, pgtype.Float8OID:
		return scanned[float64](types, field, raw)
	case pgtype.ByteaOID:
		return scanned[[]byte](types, field, raw)
	case pgtype.TimestamptzOID, pgtype.TimestampOID, pgtype.DateOID:
		return scanned[time.Time](types, field, raw)
	case pgtype.JSONOID, pgtype.JSONBOID:
		return bytes.Clone(raw), nil
	default:
		return string(raw), nil // in text, as it was asked for
	}
}

func scanned[T any](types *pgtype.Map, field pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	var v T
	if err := types.Scan(field.DataTypeOID, field.Format, raw, &v); err != nil {
		return nil, err
	}
	return v, nil
}
