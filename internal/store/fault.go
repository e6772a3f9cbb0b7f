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
)

// Fault is what an error of Postgres or of the way there means for whoever sent the statement. It is decided here once; nobody else
// looks at an SQLSTATE (T30).
type Fault int

// The faults.
const (
	FaultNone      Fault = iota
	FaultTransient       // send the same again, later: lost connection, failover, deadlock, serialization, timeouts, full pool
	FaultData            // one entry's own data is refused (22, 23, 54): the others are innocent
	FaultConfig          // the installation is wrong (schema, rights, password): retry slowly, say so loudly, fail nothing
	FaultCancelled       // the caller's context ended
)

func (f Fault) String() string {
	return [...]string{"none", "transient", "data", "configuration", "cancelled"}[f]
}

// SQLSTATEs that are told apart from their class.
const (
	codeUniqueViolation   = "23505"
	codeReadOnly          = "25006"
	codeCachedPlanChanged = "0A000"
	codeStatementGone     = "26000"
	codeCancelled         = "57014"
	codeOutOfMemory       = "53200"
	codeRefused           = "42501"
)

// Classify says what an error means. An error that is no server's report, and no end of ctx, is taken for a broken connection:
// transient.
func Classify(err error) Fault {
	if err == nil {
		return FaultNone
	}
	if pg := reported(err); pg != nil {
		return classifyCode(pg.Code)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return FaultCancelled
	}
	if errors.Is(err, puddle.ErrClosedPool) {
		return FaultConfig // the host has closed its pool: it never opens again
	}
	var unsendable pgx.ErrPreprocessingBatch
	if errors.As(err, &unsendable) && !LostConnection(err) {
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

func classifyCode(code string) Fault {
	switch code {
	case codeReadOnly, codeCachedPlanChanged, codeStatementGone:
		// A standby or a server going down; a plan cached from before a migration; a proxy that lost our prepared statement.
		return FaultTransient
	}
	switch {
	case hasClass(code, "22", "23", "54"):
		return FaultData
	case hasClass(code, "42", "28", "3D", "3F", "0L", "0P"):
		return FaultConfig
	default:
		// 08 connection, 25 transaction state, 40 rollback, 53 resources, 55 object state, 57 operator, 58 system, XX internal.
		return FaultTransient
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

// IsRefused reports whether the role may not do what was sent.
func IsRefused(err error) bool { return hasCode(err, codeRefused) }

// isCancelled reports whether the server ended a statement, by its statement_timeout or at somebody's wish.
func isCancelled(err error) bool { return hasCode(err, codeCancelled) }

func hasCode(err error, code string) bool {
	pg := reported(err)
	return pg != nil && pg.Code == code
}

// LostConnection reports whether the connection itself broke or the server went down or takes no writes, rather than one statement
// failing: nobody's heartbeat was heard meanwhile. After it the reaper holds off: heartbeats go first (T20). Behind some proxies a dead
// server is a server error of class 08 on a live connection; a network that swallows is only noticed by our own timeout.
func LostConnection(err error) bool {
	if pg := reported(err); pg != nil {
		return hasClass(pg.Code, "08", "57P", codeReadOnly)
	}
	var dial *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &dial) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// MayNeverPass reports transient trouble that may be one entry's own doing: a time limit or a lock that it runs into each time, memory that
// it takes, an internal error that it provokes. Others should not be kept waiting behind it.
func MayNeverPass(err error) bool {
	pg := reported(err)
	return IsLockTimeout(err) || pg != nil && (pg.Code == codeCancelled || pg.Code == codeOutOfMemory || hasClass(pg.Code, "XX"))
}

// unknown reports whether err leaves open if the transaction was committed.
func unknown(err error) bool {
	var u interface{ Unknown() bool }
	return errors.As(err, &u) && u.Unknown()
}
