package entpgx

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// textButTimes asks for results in text, so that every sql.Scanner of a field sees the same value
// as with database/sql, but for times in binary: their text depends on the DateStyle that a role, a
// database or the session has set, and pgx reads the ISO style only.
//
// It works where the server describes the result: not in pgx's modes exec and simple_protocol,
// whose results are all text. There the style is set to ISO around a query, but only if it is
// another: the server reports it to the client, so that asking costs nothing. See pooled and inTx.
var textButTimes = pgx.QueryResultFormatsByOID{
	pgtype.TimestamptzOID: pgx.BinaryFormatCode,
	pgtype.TimestampOID:   pgx.BinaryFormatCode,
	pgtype.DateOID:        pgx.BinaryFormatCode,
}

const setStyle = `SELECT set_config('datestyle', $1, true)`

// textOnly reports whether results come in text whatever is asked for.
func textOnly(mode pgx.QueryExecMode) bool {
	return mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
}

// styleOf is a connection's DateStyle; "" if that is ISO, or a proxy does not pass it on.
func styleOf(conn *pgx.Conn) string {
	style := conn.PgConn().ParameterStatus("DateStyle")
	if strings.HasPrefix(style, "ISO") {
		return ""
	}
	return style
}

// pooled runs statements on a pool whose results come in text only.
type pooled struct{ *pgxpool.Pool }

// Query runs a query in a separate transaction if the connection's style is not ISO.
func (p pooled) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if styleOf(conn.Conn()) == "" {
		found, err := conn.Query(ctx, sql, args...)
		return finally(found, err, func() error { conn.Release(); return nil }) //nolint:sqlclosecheck // finally does
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return nil, err
	}
	if _, err := tx.Exec(ctx, setStyle, "ISO"); err != nil {
		defer conn.Release()
		return nil, errors.Join(err, undo(ctx, tx))
	}
	found, err := tx.Query(ctx, sql, args...)
	return finally(found, err, func() error { //nolint:sqlclosecheck // finally does
		defer conn.Release()
		if found.Err() != nil {
			return undo(ctx, tx)
		}
		return tx.Commit(ctx)
	})
}

// undo rolls back, although ctx may have ended.
func undo(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	return tx.Rollback(ctx)
}

// inTx runs statements in a transaction.
type inTx struct{ pgx.Tx }

// Query sets the style to ISO for as long as the query is read, where the results come in text
// only. A query that fails ends the transaction, or the savepoint, and with it the setting.
func (t inTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	style := styleOf(t.Conn())
	if style == "" || !textOnly(t.Conn().Config().DefaultQueryExecMode) {
		return t.Tx.Query(ctx, sql, args...)
	}
	if _, err := t.Exec(ctx, setStyle, "ISO"); err != nil {
		return nil, err
	}
	found, err := t.Tx.Query(ctx, sql, args...)
	return finally(found, err, func() (err error) {
		if found.Err() == nil {
			_, err = t.Exec(ctx, setStyle, style)
		}
		return err
	})
}

// finally has something done once, when a query has failed, its rows have been read, or are closed
// before.
func finally(found pgx.Rows, err error, finish func() error) (pgx.Rows, error) {
	f := &finished{Rows: found, finish: finish}
	if err != nil {
		f.end()
		return found, err
	}
	return f, nil
}

// finished are rows after which something is done.
type finished struct {
	pgx.Rows
	finish func() error
	err    error
}

func (f *finished) end() {
	if f.finish != nil {
		finish := f.finish
		f.finish = nil
		f.err = finish()
	}
}

// Next reads the next row.
func (f *finished) Next() bool {
	if f.Rows.Next() {
		return true
	}
	f.end()
	return false
}

// Close closes the rows.
func (f *finished) Close() {
	f.Rows.Close()
	f.end()
}

// Err is the error of the query, or of the statement after it.
func (f *finished) Err() error {
	if err := f.Rows.Err(); err != nil {
		return err
	}
	return f.err
}
