package entpgx

import (
	"context"
	"errors"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
)

// Enclosed is a driver for queries of ent, each of which it sends between other statements, in one
// round trip: settings that hold for the query alone, in a separate transaction. It reads the
// whole result before the query returns, so a result holds no connection. [Driver.Enclose] makes
// it.
//
// It has neither statements without a result nor transactions.
type Enclosed struct {
	driver        *Driver
	before, after []Stmt
	rewrite       func(before []Stmt, query string) ([]Stmt, string)
}

var _ dialect.Driver = (*Enclosed)(nil)

// Enclose returns a driver that sends each query between the given statements.
func (d *Driver) Enclose(before, after []Stmt) *Enclosed {
	return &Enclosed{driver: d, before: before, after: after}
}

// Rewrite returns a driver that asks f, at each query, what to send before it, and its text.
func (e *Enclosed) Rewrite(f func(before []Stmt, query string) ([]Stmt, string)) *Enclosed {
	return &Enclosed{driver: e.driver, before: e.before, after: e.after, rewrite: f}
}

// Dialect returns [dialect.Postgres].
func (*Enclosed) Dialect() string { return dialect.Postgres }

// Close does nothing: the pool belongs to its maker.
func (*Enclosed) Close() error { return nil }

// Query runs a query. It returns the errors of [Driver.Pipeline], which name the statement query.
func (e *Enclosed) Query(ctx context.Context, query string, args, v any) error {
	target, ok := v.(*entsql.Rows)
	if !ok {
		return fmt.Errorf("run a query: the result is a %T, want *sql.Rows", v)
	}
	arguments, err := list(args)
	if err != nil {
		return err
	}
	found := &buffered{}
	read, ok := ctx.Value(readingKey{}).(func(pgx.Rows) error)
	if !ok {
		read = found.read
	}
	before := e.before
	if e.rewrite != nil {
		before, query = e.rewrite(before, query)
	}
	stmts := make([]Stmt, 0, len(before)+1+len(e.after))
	stmts = append(append(stmts, before...), Stmt{Name: "query", SQL: query, Args: arguments, Read: read})
	if err := e.driver.Pipeline(ctx, append(stmts, e.after...)...); err != nil {
		return err
	}
	target.ColumnScanner = found
	return nil
}

type readingKey struct{}

// Reading returns a context in which an [Enclosed] driver hands the rows of a query to read, as
// [Stmt.Read], and none to ent: its scan by reflection costs twice as much as pgx's, in each row.
// So ent's Scan into a slice of structs without fields composes and sends the query.
func Reading(ctx context.Context, read func(pgx.Rows) error) context.Context {
	return context.WithValue(ctx, readingKey{}, read)
}

var errEnclosed = errors.New("this driver runs single queries only")

// Exec always fails.
func (*Enclosed) Exec(context.Context, string, any, any) error { return errEnclosed }

// Tx always fails.
func (*Enclosed) Tx(context.Context) (dialect.Tx, error) { return nil, errEnclosed }

var _ entsql.ColumnScanner = (*buffered)(nil)

// read copies the rows. Each has a buffer, which the values that are scanned as bytes share.
func (b *buffered) read(rows pgx.Rows) error {
	for _, field := range rows.FieldDescriptions() {
		b.columns = append(b.columns, field.Name)
		b.types = append(b.types, columnType{field.DataTypeOID, field.Format})
	}
	for rows.Next() {
		values := rows.RawValues()
		size := 0
		for _, value := range values {
			size += len(value)
		}
		text := make([]byte, 0, size)
		for _, value := range values {
			if value == nil {
				b.cells = append(b.cells, nil)
				continue
			}
			text = append(text, value...)
			b.cells = append(b.cells, text[len(text)-len(value):len(text):len(text)])
		}
	}
	return rows.Err()
}
