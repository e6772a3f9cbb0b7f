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
	// Read is called once with the open rows and must not keep them; it need neither close them nor
	// check their Err. Nil discards the result.
	Read func(pgx.Rows) error
	// Ahead marks settings that have to hold while the statements after them are prepared, which may
	// wait for the lock of a table. It is for settings that end with their transaction: if they go
	// ahead, their error counts as one before anything was sent.
	Ahead bool
}

// Pipeline sends all statements in one round trip on one connection and reads the results in
// order. If they must be atomic, the caller puts BEGIN … COMMIT among them; a pipeline may hold at
// most one transaction. If the connection has not met one of the statements before, it takes
// further round trips, as pgx's mode demands: one in which it is prepared, and before that one for
// the statements up to the last that is [Stmt.Ahead].
//
// An error is always a *[StmtError]. The connection is then left without an open transaction, or
// closed. Inside a transaction (Within), the owner ends the transaction, and the statements must
// not.
//
// An error of Read does not stop the statements: the server runs them all, up to the COMMIT.
func (d *Driver) Pipeline(ctx context.Context, stmts ...Stmt) error {
	if len(stmts) == 0 {
		return nil
	}
	if d.around == nil {
		return d.pipeline(ctx, stmts)
	}
	return d.around(ctx, stmts, func(ctx context.Context) error { return d.pipeline(ctx, stmts) })
}

func (d *Driver) pipeline(ctx context.Context, stmts []Stmt) error {
	if d.tx != nil {
		return pipeline(ctx, d.tx, d.tx.Conn(), stmts, false)
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return &StmtError{Name: stmts[0].Name, Err: fmt.Errorf("acquire a connection: %w", err), unconnected: true}
	}
	defer conn.Release()
	return pipeline(ctx, conn, conn.Conn(), stmts, isIdle(conn.Conn()))
}

// PipelineOn is [Driver.Pipeline] on a connection that the caller holds: one of Dial, or one of the
// pool.
func (d *Driver) PipelineOn(ctx context.Context, conn *pgx.Conn, stmts ...Stmt) error {
	if len(stmts) == 0 {
		return nil
	}
	if d.around == nil {
		return pipeline(ctx, conn, conn, stmts, isIdle(conn))
	}
	return d.around(ctx, stmts, func(ctx context.Context) error { return pipeline(ctx, conn, conn, stmts, isIdle(conn)) })
}

// sender sends a batch: it is the connection, or the wrapper that guards its transaction.
type sender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

var (
	_ sender = (*pgx.Conn)(nil)
	_ sender = (*pgxpool.Conn)(nil)
	_ sender = (pgx.Tx)(nil)
)

const idle = 'I' // the status of a connection without a transaction

func isIdle(conn *pgx.Conn) bool { return !conn.IsClosed() && conn.PgConn().TxStatus() == idle }

// pipeline runs the statements. If ours is true, it ends a transaction that they leave open. It
// never ends one that the caller began, not even if it seems over: its connection may be in
// another's hands by now.
func pipeline(ctx context.Context, through sender, conn *pgx.Conn, stmts []Stmt, ours bool) error {
	if conn.IsClosed() {
		return &StmtError{Name: stmts[0].Name, Err: pgconn.ErrConnClosed}
	}
	first := ahead(conn, stmts)
	failed := send(ctx, through, conn, stmts, 0, first)
	if failed != nil {
		failed.Sent = false // nothing that had an effect
	} else {
		failed = send(ctx, through, conn, stmts, first, len(stmts))
	}
	if failed == nil {
		return nil
	}
	failed.Name = stmts[failed.Index].Name
	forget(conn)
	if ours {
		rollback(ctx, conn)
	}
	return failed
}

// send sends the statements from one up to another, and reads their results.
func send(ctx context.Context, through sender, conn *pgx.Conn, all []Stmt, from, to int) *StmtError {
	stmts := all[from:to]
	if len(stmts) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	for _, stmt := range stmts {
		batch.Queue(stmt.SQL, stmt.Args...)
	}
	results := through.SendBatch(ctx, batch)
	// Between sending and reading, the connection is busy, or closed if it broke. In any other status,
	// nothing was sent.
	sent := conn.PgConn().IsBusy() || conn.IsClosed()
	failed := read(results, stmts)
	if err := results.Close(); err != nil && failed == nil {
		// All statements were answered, so the end of the implicit transaction around them failed.
		failed = &StmtError{Index: len(stmts) - 1, Err: err}
	}
	if failed == nil {
		return nil
	}
	failed.locate(conn, stmts, sent)
	failed.Index += from
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
		// The server's own error comes first: it may well be the reason why Read failed.
		if reported := rows.Err(); reported != nil && !errors.Is(err, reported) {
			err = reported
		}
		if err != nil {
			return &StmtError{Index: i, Err: err}
		}
	}
	return nil
}

// rollback ends the transaction that a failed pipeline left open. If that fails, it closes the
// connection.
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

// ErrTooLarge is in the error of a pipeline that was not sent, since one of its messages would have
// been larger than the gibibyte that Postgres takes.
var ErrTooLarge = errors.New("too large for Postgres")

// tooLarge is the text of pgx's error, which has no type.
const tooLarge = "message body too large"

// StmtError says which statement of a pipeline failed, and why.
type StmtError struct {
	// Name and Index belong to the statement. If the failure belongs to no statement in particular
	// (no connection; a syntax error in simple protocol, which parses all at once), they belong to
	// the first one.
	Name  string
	Index int
	// Sent says that the statements may have reached the server.
	Sent bool
	// Err is the cause: a *pgconn.PgError if the server reported it, an error that Read returned, or
	// an error of the context, the connection or the encoding of the arguments.
	Err error

	beforeCommit bool // a COMMIT would have followed
	unconnected  bool // there was no connection to send it over
}

// Error returns the statement's name and the cause; only the cause if there was no connection,
// which is no statement's failure.
func (e *StmtError) Error() string {
	if e.unconnected {
		return e.Err.Error()
	}
	return fmt.Sprintf("statement %q: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *StmtError) Unwrap() error { return e.Err }

// Unknown reports whether the pipeline may have taken effect: it was sent, and no error of the
// server itself rules out that its transaction committed. If it is false, nothing took effect
// except the part that an earlier COMMIT of the same pipeline made durable. It is also true if only
// Read failed.
func (e *StmtError) Unknown() bool {
	if !e.Sent {
		return false
	}
	var reported *pgconn.PgError
	if !errors.As(e.Err, &reported) {
		return true
	}
	// With class 08 a pooler in between reports that it lost its server, at whichever statement.
	if strings.HasPrefix(reported.Code, "08") {
		return true
	}
	// The end of the session may cut off a COMMIT that has taken effect; an ordinary error cannot.
	return severity(reported) != "ERROR" && !e.beforeCommit
}

// SafeToRetry is the negation of Sent, for [pgconn.SafeToRetry]: pgx's own answer is wrong if the
// connection broke while the answers were read.
func (e *StmtError) SafeToRetry() bool { return !e.Sent }

func severity(reported *pgconn.PgError) string {
	if reported.SeverityUnlocalized != "" {
		return reported.SeverityUnlocalized
	}
	return reported.Severity
}

// locate completes the error: which of the statements it is, whether anything was sent, and whether
// a COMMIT would have followed.
func (e *StmtError) locate(conn *pgx.Conn, stmts []Stmt, sent bool) {
	e.Sent = sent
	// In exec and simple_protocol modes pgx reads once more after the connection broke, and reports
	// that read.
	if sent && errors.Is(e.Err, pgconn.ErrConnClosed) {
		e.Err = fmt.Errorf("%w (%s)", io.ErrUnexpectedEOF, e.Err) //nolint:errorlint // nobody may take it for a connection that had been closed before
	}
	var preparing pgx.ErrPreprocessingBatch
	switch {
	case strings.HasSuffix(e.Err.Error(), tooLarge):
		e.Sent = false // pgx gives all of it up
		e.Err = fmt.Errorf("%w: %w", ErrTooLarge, e.Err)
	case errors.As(e.Err, &preparing):
		e.Sent = false // only descriptions were requested
		e.Index = indexOf(stmts, func(stmt Stmt) bool { return stmt.SQL == preparing.SQL() })
	case !e.Sent:
		e.Index = indexOf(stmts, func(stmt Stmt) bool { return !encodable(conn, stmt.Args) })
	}
	for _, later := range stmts[e.Index+1:] {
		e.beforeCommit = e.beforeCommit || strings.EqualFold(strings.TrimSpace(later.SQL), "COMMIT")
	}
}

// indexOf returns the index of the first statement that matches, or 0.
func indexOf(stmts []Stmt, match func(Stmt) bool) int {
	for i, stmt := range stmts {
		if match(stmt) {
			return i
		}
	}
	return 0
}

// encodable reports whether the arguments can be encoded where the server does not report their
// types. In that case pgx does not say which argument cannot be encoded.
func encodable(conn *pgx.Conn, args []any) bool {
	for _, arg := range args {
		if _, err := conn.TypeMap().Encode(0, pgx.TextFormatCode, arg, nil); err != nil {
			return false
		}
	}
	return true
}
