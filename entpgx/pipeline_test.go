package entpgx_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/steady"
	"github.com/gendurable/gendurable/internal/tier"
)

const account = `CREATE TABLE account (
	name text PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0),
	owner text REFERENCES account DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO account VALUES ('a', 10), ('b', 10)`

var (
	begin  = entpgx.Stmt{Name: "begin", SQL: "BEGIN"}
	commit = entpgx.Stmt{Name: "commit", SQL: "COMMIT"}
)

func add(name string, amount int64) entpgx.Stmt {
	return entpgx.Stmt{
		Name: "add to " + name,
		SQL:  "UPDATE account SET balance = balance + $1::bigint WHERE name = $2::text",
		Args: []any{amount, name},
	}
}

func balance(t *testing.T, driver *entpgx.Driver, name string) int64 {
	t.Helper()
	return scalar[int64](t, driver, "SELECT balance FROM account WHERE name = '"+name+"'")
}

// stmtError returns the error of a failed pipeline and checks that it names the statement.
func stmtError(t *testing.T, err error, index int, name string) *entpgx.StmtError {
	t.Helper()
	var failed *entpgx.StmtError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, name, failed.Name, failed)
	require.Equal(t, index, failed.Index)
	if !strings.HasPrefix(failed.Error(), "acquire a connection: ") {
		require.ErrorContains(t, err, fmt.Sprintf("statement %q: ", name))
	}
	return failed
}

func code(t *testing.T, err error) string {
	t.Helper()
	var reported *pgconn.PgError
	require.ErrorAs(t, err, &reported)
	return reported.Code
}

func TestPipelineReadsInOrder(t *testing.T) {
	t.Parallel()
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		var seen []int64
		look := func(name string) entpgx.Stmt {
			return entpgx.Stmt{
				Name: "look", SQL: "SELECT balance FROM account WHERE name = $1::text -- the rest is a comment", Args: []any{name},
				Read: func(rows pgx.Rows) error {
					found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
					seen = append(seen, found...)
					return err
				},
			}
		}
		stmts := []entpgx.Stmt{begin, look("a"), add("a", 5), look("a"), look("nobody"), add("b", -5), look("b"), commit}
		for range 2 { // the second time the statements are known
			require.NoError(t, driver.Pipeline(t.Context(), stmts...))
		}
		require.Equal(t, []int64{10, 15, 5, 15, 20, 0}, seen)
	})
}

func TestPipelineOfNothing(t *testing.T) {
	t.Parallel()
	driver := newDriver(t, account, pgx.QueryExecModeCacheStatement)
	require.NoError(t, driver.Pipeline(t.Context()))
	require.NoError(t, driver.PipelineOn(t.Context(), nil))
}

func TestFailedStatementUndoesItsTransaction(t *testing.T) {
	t.Parallel()
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		connections := driver.Pool().Stat().NewConnsCount()
		overdraw := add("b", -11)
		overdraw.Read = func(rows pgx.Rows) error {
			for rows.Next() {
				return errors.New("a row of a refused statement")
			}
			return rows.Err()
		}
		for _, refused := range []entpgx.Stmt{add("b", -11), overdraw} {
			failed := stmtError(t, driver.Pipeline(t.Context(), begin, add("a", 5), refused, add("a", 1), commit), 2, "add to b")
			require.Equal(t, "23514", code(t, failed))
			require.True(t, failed.Sent)
			require.False(t, failed.Unknown())
			require.EqualValues(t, 10, balance(t, driver, "a"))
		}
		require.Equal(t, connections, driver.Pool().Stat().NewConnsCount(), "a connection was given up")
	})
}

func TestRefusedCommitIsKnown(t *testing.T) {
	t.Parallel()
	orphan := entpgx.Stmt{Name: "orphan", SQL: "INSERT INTO account VALUES ('c', 1, 'nobody')"}
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		failed := stmtError(t, driver.Pipeline(t.Context(), begin, orphan, commit), 2, "commit")
		require.Equal(t, "23503", code(t, failed))
		require.False(t, failed.Unknown())

		// Without BEGIN the whole pipeline is one transaction, which fails after its last answer.
		err := driver.Pipeline(t.Context(), orphan, add("a", 5))
		var implicit *entpgx.StmtError
		require.ErrorAs(t, err, &implicit)
		require.Equal(t, "23503", code(t, err))
		require.False(t, implicit.Unknown())
		require.EqualValues(t, 10, balance(t, driver, "a"))
	})
}

func TestNothingIsSentThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	wrong := entpgx.Stmt{Name: "wrong", SQL: "SELECT $1::bigint", Args: []any{struct{ x chan int }{}}}
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		failed := stmtError(t, driver.Pipeline(t.Context(), begin, add("a", 5), wrong, commit), 2, "wrong")
		require.False(t, failed.Sent)
		require.False(t, failed.Unknown())
		require.EqualValues(t, 10, balance(t, driver, "a"))
	})
}

// tooLarge is an argument that fails to be encoded as one does whose message is too large.
type tooLarge struct{}

// Value returns pgx's error.
func (tooLarge) Value() (driver.Value, error) { return nil, errors.New("message body too large") }

// Only the proof has a message of more than a gibibyte: client and driver hold it several times.
func TestNothingIsSentThatIsTooLarge(t *testing.T) {
	t.Parallel()
	var arg any = tooLarge{}
	if tier.Long() {
		was := debug.SetMemoryLimit(2 << 30) // what has been copied goes at once
		t.Cleanup(func() { debug.SetMemoryLimit(was) })
		arg = make([]byte, 1<<30)
	}
	db := newDriver(t, account, pgx.QueryExecModeCacheStatement)
	large := entpgx.Stmt{Name: "large", SQL: "SELECT length($1::bytea)", Args: []any{arg}}
	err := db.Pipeline(t.Context(), begin, add("a", 5), large, commit)
	require.ErrorIs(t, err, entpgx.ErrTooLarge)
	var failed *entpgx.StmtError
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.Sent)
	require.False(t, failed.Unknown())
	require.EqualValues(t, 10, balance(t, db, "a"))
}

func TestStatementThatDoesNotParse(t *testing.T) {
	t.Parallel()
	wrong := entpgx.Stmt{Name: "wrong", SQL: "SELEC 1"}
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		index, name := 2, "wrong"
		if driver.Pool().Config().ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
			index, name = 0, "begin"
		}
		for range 2 { // a statement that failed to prepare must not stay in a cache
			failed := stmtError(t, driver.Pipeline(t.Context(), begin, add("a", 5), wrong, commit), index, name)
			require.Equal(t, "42601", code(t, failed))
			require.False(t, failed.Unknown())
			require.EqualValues(t, 10, balance(t, driver, "a"))
		}
	})
}

func TestReadThatFailsDoesNotStopTheStatements(t *testing.T) {
	t.Parallel()
	unreadable := errors.New("unreadable")
	refusing := add("a", 5)
	refusing.SQL += " RETURNING balance"
	refusing.Read = func(rows pgx.Rows) error {
		require.True(t, rows.Next())
		return unreadable
	}
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		failed := stmtError(t, driver.Pipeline(t.Context(), begin, refusing, add("b", 1), commit), 1, "add to a")
		require.ErrorIs(t, failed, unreadable)
		require.True(t, failed.Unknown())
		require.EqualValues(t, 15, balance(t, driver, "a"))
		require.EqualValues(t, 11, balance(t, driver, "b"))
	})
}

func TestEndOfTheSession(t *testing.T) {
	t.Parallel()
	end := entpgx.Stmt{Name: "end", SQL: "SELECT pg_terminate_backend(pg_backend_pid())"}
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		before := stmtError(t, driver.Pipeline(t.Context(), begin, add("a", 5), end, commit), 2, "end")
		require.Equal(t, "57P01", code(t, before))
		require.False(t, before.Unknown(), "no COMMIT was reached")

		last := stmtError(t, driver.Pipeline(t.Context(), add("a", 5), end), 1, "end")
		require.True(t, last.Unknown())
		require.EqualValues(t, 10, balance(t, driver, "a"))
	})
}

func TestContext(t *testing.T) {
	t.Parallel()
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		failed := stmtError(t, driver.Pipeline(ended, begin, commit), 0, "begin")
		require.ErrorIs(t, failed, context.Canceled)
		require.False(t, failed.Sent)
		require.False(t, failed.Unknown())

		conn, err := driver.Dial(t.Context())
		require.NoError(t, err)
		defer conn.Close(context.Background())
		failed = stmtError(t, driver.PipelineOn(ended, conn, begin, commit), 0, "begin")
		require.False(t, failed.Unknown())

		running, stop := context.WithCancel(t.Context())
		defer stop()
		sleep := entpgx.Stmt{Name: "sleep", SQL: "SELECT pg_sleep(600)"}
		cutOff := make(chan error, 1)
		go func() { cutOff <- driver.PipelineOn(running, conn, begin, sleep, commit) }()
		pid := conn.PgConn().PID()
		steady.Eventually(t, func() (sleeps bool) {
			require.NoError(t, driver.Pool().QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep')", int64(pid)).Scan(&sleeps))
			return sleeps
		})
		stop()
		require.ErrorAs(t, <-cutOff, &failed)
		require.ErrorIs(t, failed, context.Canceled)
		require.True(t, failed.Unknown())
		require.True(t, conn.IsClosed())

		failed = stmtError(t, driver.PipelineOn(t.Context(), conn, begin, commit), 0, "begin")
		require.ErrorIs(t, failed, pgconn.ErrConnClosed)
		require.False(t, failed.Unknown())
	})
}

func TestTransactionOfTheCallerStaysOpen(t *testing.T) {
	t.Parallel()
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		conn, err := driver.Dial(t.Context())
		require.NoError(t, err)
		defer conn.Close(context.Background())
		require.NoError(t, driver.PipelineOn(t.Context(), conn, begin, add("a", 5)))
		stmtError(t, driver.PipelineOn(t.Context(), conn, add("b", -11)), 0, "add to b")
		require.Equal(t, byte('E'), conn.PgConn().TxStatus())
	})
}

func TestPipelineWithinATransaction(t *testing.T) {
	t.Parallel()
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		tx, err := driver.Pool().Begin(t.Context())
		require.NoError(t, err)
		within := entpgx.Within(tx)
		require.NoError(t, within.Pipeline(t.Context(), add("a", 5), add("b", 5)))
		require.EqualValues(t, 10, balance(t, driver, "a"), "committed by the pipeline")
		stmtError(t, within.Pipeline(t.Context(), add("a", -100)), 0, "add to a")
		require.NoError(t, tx.Rollback(t.Context()))
		require.EqualValues(t, 10, balance(t, driver, "a"))

		failed := stmtError(t, within.Pipeline(t.Context(), add("a", 5)), 0, "add to a")
		require.ErrorIs(t, failed, pgx.ErrTxClosed)
		require.False(t, failed.Unknown())
		require.EqualValues(t, 10, balance(t, driver, "a"), "ran after its transaction had ended")
	})
}
