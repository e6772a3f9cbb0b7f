package store

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/gendurable/gendurable/entpgx"
)

// Fault is what an error of Postgres, or of the way there, means for whoever sent the statement. It
// is decided here once: nobody else looks at an SQLSTATE (T30).
type Fault int

// The faults.
const (
	FaultNone      Fault = iota
	FaultTransient       // send the same again, later: lost connection, failover, deadlock, timeouts, full pool
	FaultData            // Postgres refuses one entry, and the others are innocent: whatever is none of the rest
	FaultConfig          // the installation is wrong (schema, rights, password): retry slowly, say so loudly, fail nothing
	FaultCancelled       // the caller's context ended
)

func (f Fault) String() string {
	return [...]string{"none", "transient", "data", "configuration", "cancelled"}[f]
}

// SQLSTATEs that are told apart from their class.
const (
	codeUniqueViolation = "23505"
	codeReadOnly        = "25006"
	codeStatementGone   = "26000"
	codeCancelled       = "57014"
	codeRefused         = "42501"
	codeUnsupported     = "0A000"
)

// Classify says what an error means. An error that is no server's report, and no end of ctx, is
// taken for a broken connection: transient.
func Classify(err error) Fault {
	if err == nil {
		return FaultNone
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
		return FaultData // an argument that cannot be encoded was never sent, and never will be
	}
	return FaultTransient
}

// reported is the server's report in an error, or nil. A nil one in a non-nil error, as a step's own
// function may return it, is none.
func reported(err error) *pgconn.PgError {
	pg, _ := errors.AsType[*pgconn.PgError](err)
	return pg
}

// beyondMemory begins the text, never translated, of an internal error (XX000) that is a value's own:
// a jsonb of tens of millions of elements, say, for which Postgres would need more than a gibibyte.
const beyondMemory = "invalid memory alloc request size"

// classifyReport lists what cannot be one entry's doing. Everything else is: besides values that do
// not fit (22, 23, 54), triggers and policies of the host raise whatever they like (P0001, 38000,
// 44000, codes of their own), and a damaged row is its own trouble (XX001, XX002).
func classifyReport(pg *pgconn.PgError) Fault {
	switch {
	case hasClass(pg.Code, "XX001", "XX002"), strings.HasPrefix(pg.Message, beyondMemory):
		return FaultData
	case hasClass(pg.Code, "08", "25", "26", "40", "53", "55", "57", "58", "XX"):
		// Connection, state of the transaction (a standby), a statement that a proxy has lost,
		// rollback, resources, state of an object (a lock), operator, system, internal.
		return FaultTransient
	case pg.Code == codeUnsupported && pg.Routine == "RevalidateCachedQuery":
		return FaultTransient // the plan of a statement was cached before a migration
	case hasClass(pg.Code, "42", "28", "3D", "3F", "0L", "0P", "F0"):
		return FaultConfig
	default:
		return FaultData
	}
}

func hasClass(code string, classes ...string) bool {
	for _, c := range classes {
		if strings.HasPrefix(code, c) {
			return true
		}
	}
	return false
}

// MayPass reports whether what a step's own function met in its transaction may not be met again: conflicts with others, and what befalls a
// connection. Anything else that Postgres said to it is the step's error, and so is everything that Postgres did not say.
func MayPass(err error) bool {
	pg := reported(err)
	return pg != nil && hasClass(pg.Code, "08", "40", "53", "57", "55P03", codeReadOnly, codeStatementGone)
}

// IsUniqueViolation reports whether a unique index refused a row.
func IsUniqueViolation(err error) bool { return hasCode(err, codeUniqueViolation) }

// IsReadOnly reports whether the server takes no writes: a standby, or one that is to become the
// primary in a moment.
func IsReadOnly(err error) bool { return hasCode(err, codeReadOnly) }

// IsRefused reports whether the role may not do what was sent.
func IsRefused(err error) bool { return hasCode(err, codeRefused) }

// isCancelled reports whether the server ended a statement, by its statement_timeout or at somebody's wish.
func isCancelled(err error) bool { return hasCode(err, codeCancelled) }

func hasCode(err error, code string) bool {
	pg := reported(err)
	return pg != nil && pg.Code == code
}

// lostConnection reports whether the connection itself broke, where that is no server's report.
func lostConnection(err error) bool {
	var dial *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &dial) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// MayNeverPass reports whether trouble that is retried may be one entry's own doing, however often
// it is met: a time limit or a lock that it runs into each time, memory that it takes, a function that
// a host's trigger misses. Others should not be kept waiting behind it. Conflicts, and what befalls
// the connection, the server or the role as a whole, are nobody's doing.
func MayNeverPass(err error) bool {
	pg := reported(err)
	return pg != nil && !hasClass(pg.Code, "08", "28", "3D", "40", "53100", "53300", "57P", codeReadOnly, codeStatementGone)
}

// blames reports whether one row or entry of several may have brought an error about, in a statement
// that waits for nobody: what Postgres refuses, and what a trigger meets that the engine's own
// statements cannot.
func blames(err error) bool {
	pg := reported(err)
	return Classify(err) == FaultData ||
		pg != nil && hasClass(pg.Code, "42", "3F", "55000", "XX")
}

// unknown reports whether err leaves open if the transaction was committed.
func unknown(err error) bool {
	var u interface{ Unknown() bool }
	return errors.As(err, &u) && u.Unknown()
}
