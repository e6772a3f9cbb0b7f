package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gendurable/gendurable/entpgx"
)

// SQLTx is a *sql.Tx, or an ent *Tx generated with the feature sql/execquery.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// SQL returns a Transaction of database/sql, over any driver of Postgres; see [Foreign].
func SQL(tx SQLTx) Transaction {
	if tx == nil {
		return nothing{}
	}
	return Foreign(standard{tx})
}

// standard is a transaction of database/sql as a Querier.
type standard struct{ tx SQLTx }

func (t standard) Exec(ctx context.Context, query string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, query, args...)
	return err
}

func (t standard) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	return t.tx.QueryContext(ctx, query, args...) //nolint:rowserrcheck // run asks for it
}

// Querier runs statements, one at a time, inside a transaction of something other than pgx.
type Querier interface {
	Exec(ctx context.Context, query string, args ...any) error
	Query(ctx context.Context, query string, args ...any) (Rows, error)
}

// Rows are the rows of a [Querier], as far as the statements' readers need.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Foreign returns a Transaction that knows no pgx. Each statement takes a round trip. Arrays travel
// as text, which all drivers pass on unchanged, and the statements' casts turn it into arrays.
func Foreign(tx Querier) Transaction { return foreign{tx} }

type foreign struct{ tx Querier }

func (t foreign) run(ctx context.Context, db *entpgx.Driver, stmts ...entpgx.Stmt) error {
	for _, s := range stmts {
		if err := db.Surround(ctx, func(ctx context.Context) error { return t.one(ctx, s) }, s); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return nil
}

func (t foreign) one(ctx context.Context, s entpgx.Stmt) (err error) {
	args := make([]any, len(s.Args))
	for i, arg := range s.Args {
		args[i] = plain(arg)
	}
	if s.Read == nil {
		return t.tx.Exec(ctx, s.SQL, args...)
	}
	rows, err := t.tx.Query(ctx, s.SQL, args...)
	if err != nil {
		return err
	}
	defer func() { // close before the next statement: the connection takes one at a time
		if closed := rows.Close(); err == nil {
			err = closed
		}
	}()
	if err := s.Read(foreignRows{rows}); err != nil {
		return err
	}
	return rows.Err()
}

// foreignRows makes rows of another kind look like rows of pgx, as far as the statements' readers
// need.
type foreignRows struct{ Rows }

// Scan skips columns whose destination is nil, as pgx does.
func (r foreignRows) Scan(dest ...any) error {
	into := make([]any, len(dest))
	for i, d := range dest {
		if into[i] = d; d == nil {
			into[i] = new(any)
		}
	}
	return r.Rows.Scan(into...)
}

func (r foreignRows) Close()                                     { _ = r.Rows.Close() }
func (foreignRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (foreignRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (foreignRows) Values() ([]any, error)                       { return nil, nil }
func (foreignRows) RawValues() [][]byte                          { return nil }
func (foreignRows) TypeMap() *pgtype.Map                         { return nil }
func (foreignRows) Conn() *pgx.Conn                              { return nil }

var _ pgx.Rows = foreignRows{}

// plain converts an argument to a form that every driver takes.
func plain(arg any) any {
	switch a := arg.(type) {
	case []string:
		return array(a, quoted)
	case []*string:
		return array(a, orNull(quoted))
	case []int16:
		return array(a, decimal[int16])
	case []int32:
		return array(a, decimal[int32])
	case []int64:
		return array(a, decimal[int64])
	case []*int64:
		return array(a, orNull(decimal[int64]))
	case []*time.Time:
		return array(a, orNull(moment))
	default:
		return arg
	}
}

// array renders a Postgres array as text.
func array[T any](list []T, element func(*strings.Builder, T)) any {
	if list == nil {
		return nil
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		element(&b, v)
	}
	b.WriteByte('}')
	return b.String()
}

func orNull[T any](element func(*strings.Builder, T)) func(*strings.Builder, *T) {
	return func(b *strings.Builder, v *T) {
		if v == nil {
			b.WriteString("NULL")
			return
		}
		element(b, *v)
	}
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func quoted(b *strings.Builder, s string) {
	b.WriteByte('"')
	_, _ = escapes.WriteString(b, s) // a Builder never fails
	b.WriteByte('"')
}

func decimal[N int16 | int32 | int64](b *strings.Builder, n N) {
	b.WriteString(strconv.FormatInt(int64(n), 10))
}

func moment(b *strings.Builder, t time.Time) {
	quoted(b, t.UTC().Format("2006-01-02 15:04:05.999999Z07:00"))
}
