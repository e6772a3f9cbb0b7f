package entpgx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Stmt is one statement of a pipeline.
type Stmt struct {
	Name string // for errors, e.g. "claim"
	SQL  string
	Args []any
	// Read is called once with the open rows and must not keep them; it need neither close them nor check their Err.
	// Without it the result is discarded.
	Read func(pgx.Rows) error
}

// Pipeline sends all statements in one round trip on one connection and reads the results in order. The caller puts
// BEGIN … COMMIT among them where they must be atomic; one transaction a pipeline is the most. The first time that a
// connection meets a statement costs a further round trip, as pgx's mode demands.
//
// An error is always a *[StmtError]. The connection is then left without an open transaction, or closed. Inside a
// transaction (Within) that is the owner's business, and the statements must not end it.
//
// An error of Read does not stop the statements: the server runs them all, up to the COMMIT.
func (d *Driver) Pipeline(ctx context.Context, stmts ...Stmt) error {
	if len(stmts) == 0 {
		return nil
	}
	if d.tx != nil {
		return pipeline(ctx, d.tx, d.tx.Conn(), stmts, false)
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return &StmtError{Name: stmts[0].Name, Err: fmt.Errorf("acquire a connection: %w", err)}
	}
	defer conn.Release()
	return pipeline(ctx, conn, conn.Conn(), stmts, isIdle(conn.Conn()))
}

// PipelineOn is [Driver.Pipeline] on a connection outside of a pool.
func PipelineOn(ctx context.Context, conn *pgx.Conn, stmts ...Stmt) error {
	if len(stmts) == 0 {
		return nil
	}
	return pipeline(ctx, conn, conn, stmts, isIdle(conn))
}

// sender is what a batch goes through: the connection, or the wrapper that guards its transaction.
type sender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

var (
	_ sender = (*pgx.Conn)(nil)
	_ sender = (*pgxpool.Conn)(nil)
	_ sender = (pgx.Tx)(nil)
)

const idle = 'I' // the transaction status of a connection without one

func isIdle(conn *pgx.Conn) bool { return !conn.IsClosed() && conn.PgConn().TxStatus() == idle }

// pipeline: ours says that a transaction left open at its end is the pipeline's own. One that someone else began never is, not even if it
// has ended meanwhile: its connection may be in another's hands by now.
func pipeline(ctx context.Context, through sender, conn *pgx.Conn, stmts []Stmt, ours bool) error {
	if conn.IsClosed() {
		return &StmtError{Name: stmts[0].Name, Err: pgconn.ErrConnClosed}
	}
	batch := &pgx.Batch{}
	for _, stmt := range stmts {
		batch.Queue(stmt.SQL, stmt.Args...)
	}
	results := through.SendBatch(ctx, batch)
	// Between the sending and the reading the connection is busy, or closed if it broke: anything else was not sent.
	sent := conn.PgConn().IsBusy() || conn.IsClosed()
	failed := read(results, stmts)
	if err := results.Close(); err != nil && failed == nil {
		// All statements were answered; what failed is the end of the implicit transaction around them.
		failed = &StmtError{Index: len(stmts) - 1, Err: err}
	}
	if failed == nil {
		return nil
	}
	failed.locate(conn, stmts, sent)
	if ours {
		rollback(ctx, conn)
	}
	return failed
}

// read reads the results up to the first failure.
func read(results pgx.BatchResults, stmts []Stmt) *StmtError {
	for i, stmt := range stmts {
		if stmt.Read == nil {
			if _, err := results.Exec(); err != nil {
				return &StmtError{Index: i, Err: err}
			}
			continue
		}
		rows, err := results.Query()
		if err != nil {
			return &StmtError{Index: i, Err: err}
		}
		err = stmt.Read(rows)
		rows.Close()
		// What the server says comes first: it may well be the reason why Read failed.
		if reported := rows.Err(); reported != nil && !errors.Is(err, reported) {
			err = reported
		}
		if err != nil {
			return &StmtError{Index: i, Err: err}
		}
	}
	return nil
}

// rollback ends the transaction that a failed pipeline left open; a connection that cannot do even that is closed.
func rollback(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == idle {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if _, err := conn.PgConn().Exec(ctx, "ROLLBACK").ReadAll(); err != nil {
		_ = conn.Close(ctx)
	}
}

// StmtError says which statement of a pipeline failed, and why.
type StmtError struct {
	// Name and Index are of the statement. Where the failure belongs to none in particular (no connection, a syntax
	// error in simple protocol, which parses all at once), they are the first one's.
	Name  string
	Index int
	// Sent says that the statements may have reached the server.
	Sent bool
	// Err is the cause: a *pgconn.PgError if the server reported it, what Read returned, an error of the context, the
	// connection or the encoding of the arguments.
	Err error

	beforeCommit bool // a COMMIT would have followed
}

// Error returns the statement's name and the cause.
func (e *StmtError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StmtError) Unwrap() error { return e.Err }

// Unknown says that the pipeline may have taken effect: it was sent, and no error of the server itself rules out that
// its transaction committed. Where it is false nothing took effect, except what an earlier COMMIT of the same pipeline
// had made durable. It is true, too, when only Read failed.
func (e *StmtError) Unknown() bool {
	if !e.Sent {
		return false
	}
	var reported *pgconn.PgError
	if !errors.As(e.Err, &reported) {
		return true
	}
	// Class 08 is how a pooler in between reports a server that it lost, at whatever statement it was.
	if strings.HasPrefix(reported.Code, "08") {
		return true
	}
	// The session's end can meet a COMMIT after it took effect; an ordinary error cannot.
	return severity(reported) != "ERROR" && !e.beforeCommit
}

// SafeToRetry is the negation of Sent, for [pgconn.SafeToRetry]: what pgx says itself is wrong once a connection broke
// while the answers were read.
func (e *StmtError) SafeToRetry() bool { return !e.Sent }

func severity(reported *pgconn.PgError) string {
	if reported.SeverityUnlocalized != "" {
		return reported.SeverityUnlocalized
	}
	return reported.Severity
}

// locate completes the error: the statement, what was sent, and what would have followed.
func (e *StmtError) locate(conn *pgx.Conn, stmts []Stmt, sent bool) {
	e.Sent = sent
	// In exec and simple_protocol modes pgx reads once more after the connection broke, and reports that.
	if sent && errors.Is(e.Err, pgconn.ErrConnClosed) {
		e.Err = fmt.Errorf("%w (%s)", io.ErrUnexpectedEOF, e.Err) //nolint:errorlint // nobody may take it for a connection that had been closed before
	}
	var preparing pgx.ErrPreprocessingBatch
	switch {
	case errors.As(e.Err, &preparing):
		e.Sent = false // only descriptions were asked for
		e.Index = indexOf(stmts, func(stmt Stmt) bool { return stmt.SQL == preparing.SQL() })
	case !e.Sent:
		e.Index = indexOf(stmts, func(stmt Stmt) bool { return !encodable(conn, stmt.Args) })
	}
	e.Name = stmts[e.Index].Name
	for _, later := range stmts[e.Index+1:] {
		e.beforeCommit = e.beforeCommit || strings.EqualFold(strings.TrimSpace(later.SQL), "COMMIT")
	}
}

// indexOf returns the first statement that matches, else the first of all.
func indexOf(stmts []Stmt, match func(Stmt) bool) int {
	for i, stmt := range stmts {
		if match(stmt) {
			return i
		}
	}
	return 0
}

// encodable says whether the arguments can be encoded where the server does not tell their types, which is when pgx
// does not say which one it was.
func encodable(conn *pgx.Conn, args []any) bool {
	for _, arg := range args {
		if _, err := conn.TypeMap().Encode(0, pgx.TextFormatCode, arg, nil); err != nil {
			return false
		}
	}
	return true
}
