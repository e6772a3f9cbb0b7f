package store

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/step"
)

// Fault classifies an error of Postgres, or of the connection, by what the sender of the statement
// should do. Classify alone decides it: no other code looks at an SQLSTATE (T30).
type Fault int

// The faults.
const (
	FaultNone      Fault = iota
	FaultTransient       // send the same again later: lost connection, failover, deadlock, timeouts, full pool
	FaultData            // Postgres refuses one entry, and the others are innocent; every error that is none of the others
	FaultConfig          // the installation is wrong (schema, rights, password): retry slowly, say so loudly, fail nothing
	FaultCancelled       // the caller's context ended
)

func (f Fault) String() string {
	return [...]string{"none", "transient", "data", "configuration", "cancelled"}[f]
}

// These SQLSTATEs mean something else than their class.
const (
	codeUniqueViolation = "23505"
	codeReadOnly        = "25006"
	codeStatementGone   = "26000"
	codeCancelled       = "57014"
	codeRefused         = "42501"
	codeUnsupported     = "0A000"
	codeTooMany         = "53300"
)

// Classify returns the Fault of an error. It takes an error that is neither a server's report nor
// the end of ctx for a broken connection, which is transient.
func Classify(err error) Fault {
	if err == nil {
		return FaultNone
	}
	if _, ok := errors.AsType[*DistributedError](err); ok || errors.Is(err, ErrElsewhere) {
		return FaultTransient // the place is known by now, or a new connection finds it
	}
	if pg := reported(err); pg != nil {
		return classifyReport(pg)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return FaultCancelled
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return FaultConfig // the host has closed its pool: it never opens again
	}
	var unsendable pgx.ErrPreprocessingBatch
	if errors.Is(err, entpgx.ErrTooLarge) || errors.As(err, &unsendable) && !lostConnection(err) {
		return FaultData // an argument that cannot be encoded was not sent, and never will be
	}
	if _, ok := errors.AsType[*step.AddError](err); ok {
		return FaultData
	}
	if _, ok := errors.AsType[*step.ReleaseError](err); ok {
		return FaultData // the entry waits, not those beside it
	}
	if _, ok := errors.AsType[pgx.ScanArgError](err); ok {
		return FaultData // a value that no Go type here can hold, such as a time that is infinite
	}
	if undecoded(err) {
		return FaultData
	}
	return FaultTransient
}

// undecoded reports whether an error is ours, of a value that the server has sent and that does not
// decode: it would be the same each time, and no outage.
func undecoded(err error) bool {
	return isA[*json.SyntaxError](err) || isA[*json.UnmarshalTypeError](err) || isA[*json.InvalidUnmarshalError](err) ||
		isA[*strconv.NumError](err) || isA[*time.ParseError](err)
}

func isA[E error](err error) bool {
	_, is := errors.AsType[E](err)
	return is
}

// reported returns the server's report in an error, or nil. A step's own function may return a nil
// report in a non-nil error, which is no report.
func reported(err error) *pgconn.PgError {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	return pg
}

// beyondMemory begins the text, which Postgres never translates, of an internal error (XX000) that
// one value causes: for a jsonb of tens of millions of elements, say, Postgres would need more than
// a gibibyte.
const beyondMemory = "invalid memory alloc request size"

// classifyReport lists the errors that one entry cannot cause. It blames the entry for all others:
// besides values that do not fit (22, 23, 54), triggers and policies of the host raise any code
// (P0001, 38000, 44000, codes of their choice), and a damaged row fails alone (XX001, XX002).
func classifyReport(pg *pgconn.PgError) Fault {
	switch {
	case hasClass(pg.Code, "XX001", "XX002"), strings.HasPrefix(pg.Message, beyondMemory):
		return FaultData
	case hasClass(pg.Code, "08", "25", "26", "40", "53", "55", "57", "58", "XX"):
		// The classes are: connection, state of the transaction (a standby), a statement that a proxy has
		// lost, rollback, resources, state of an object (a lock), operator, system, internal.
		return FaultTransient
	case pg.Code == codeUnsupported && pg.Routine == "RevalidateCachedQuery":
		return FaultTransient // Postgres cached the statement's plan before a migration
	case hasMoved(pg):
		return FaultTransient
	case hasClass(pg.Code, "42", "28", "3D", "3F", "0L", "0P", "F0"):
		return FaultConfig
	default:
		return FaultData
	}
}

// hasMoved reports whether a row of the history was on its way into a partition whose range was
// given to another one, while the row waited for that: see gen_durable_roll_history. The next time
// it goes to the right one. A CHECK would be named.
func hasMoved(pg *pgconn.PgError) bool {
	return pg.Code == "23514" && pg.ConstraintName == "" && strings.HasPrefix(pg.TableName, "history")
}

func hasClass(code string, classes ...string) bool {
	for _, c := range classes {
		if strings.HasPrefix(code, c) {
			return true
		}
	}
	return false
}

// MayPass reports whether an error that a step's own function got in its transaction may be absent
// the next time: conflicts with others, and failures of the connection. Any other error of Postgres
// is the step's error, and so is every error that does not come from Postgres.
func MayPass(err error) bool {
	pg := reported(err)
	return pg != nil && (hasMoved(pg) || hasClass(pg.Code, "08", "40", "53", "57", "55P03", codeReadOnly, codeStatementGone))
}

// IsUniqueViolation reports whether a unique index refused a row.
func IsUniqueViolation(err error) bool { return hasCode(err, codeUniqueViolation) }

// IsFull reports whether the server, the database or the role has no connection left.
func IsFull(err error) bool { return hasCode(err, codeTooMany) }

// IsReported reports whether the server answered with the error.
func IsReported(err error) bool { return reported(err) != nil }

// IsReadOnly reports whether the server takes no writes: it is a standby, or about to become the
// primary.
func IsReadOnly(err error) bool { return hasCode(err, codeReadOnly) }

// IsRefused reports whether the role lacks the right to run the statement.
func IsRefused(err error) bool { return hasCode(err, codeRefused) }

// IsCancelled reports whether the server ended a statement, by its statement_timeout or on request.
func IsCancelled(err error) bool { return hasCode(err, codeCancelled) }

func hasCode(err error, code string) bool {
	pg := reported(err)
	return pg != nil && pg.Code == code
}

// lostConnection reports whether the connection broke, for an error that is no server's report.
func lostConnection(err error) bool {
	var dial *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &dial) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// IsSessionOver reports whether the session has ended, or its connection broken, under a statement.
// It does not say so about a session that never began.
func IsSessionOver(err error) bool {
	var dial *pgconn.ConnectError
	if Classify(err) != FaultTransient || errors.As(err, &dial) {
		return false
	}
	if pg := reported(err); pg != nil {
		return hasClass(pg.Code, "08", "25P03", "57P")
	}
	return lostConnection(err) || pgconn.SafeToRetry(err) // the latter: it was found closed
}

// MayNeverPass reports whether one entry may itself cause an error that is retried, at every
// attempt: it may run into a time limit or a lock each time, take too much memory, or call a
// function that a host's trigger misses; and a trigger may report a conflict each time. Others
// should not wait behind it. No entry causes what happens to the connection, the server or the role
// as a whole.
func MayNeverPass(err error) bool {
	pg := reported(err)
	return pg != nil && !hasClass(pg.Code, "08", "28", "3D", "53100", "53300", "57P", codeReadOnly, codeStatementGone)
}

// blames reports whether one row or entry of several may have caused an error, in a statement that
// waits for no lock: Postgres refuses it, or a trigger of the host fails where the engine's own
// statements cannot. Conflicts are among these: the statement skips locked rows, so it seldom
// meets a conflict by itself, and to narrow that down is just another try. A trigger may report
// one for the same row each time.
func blames(err error) bool {
	pg := reported(err)
	return Classify(err) == FaultData ||
		pg != nil && hasClass(pg.Code, "40", "42", "3F", "55000", "XX")
}

// holdsUp reports whether one row of several may have held up a sweep: blames says so, or a
// trigger of the host waits for a lock, or works longer than the statement may, alone or all of
// them together. A row that is set apart by mistake comes a minute later.
func holdsUp(err error) bool { return blames(err) || IsLockTimeout(err) || IsCancelled(err) }

// unknown reports whether err leaves open if the transaction was committed.
func unknown(err error) bool {
	var u interface{ Unknown() bool }
	return errors.As(err, &u) && u.Unknown()
}
