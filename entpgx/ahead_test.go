package entpgx_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
)

// lockNotAvailable is the SQLSTATE of a lock that was not granted within lock_timeout.
const lockNotAvailable = "55P03"

// patient are settings that bound the wait for a lock.
var patient = entpgx.Stmt{Name: "settings", SQL: "SELECT set_config('lock_timeout', $1, true)", Args: []any{"20ms"}, Ahead: true}

// Postgres locks a table to prepare a statement, too, so the settings have to hold by then. The
// connection is fresh, then has met the statement in vain, then knows it.
func TestSettingsHoldWhileStatementsArePrepared(t *testing.T) {
	t.Parallel()
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		pool := driver.Pool()
		mode := pool.Config().ConnConfig.DefaultQueryExecMode
		inTurn := mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
		other, err := pgx.Connect(t.Context(), pool.Config().ConnString())
		require.NoError(t, err)
		defer other.Close(t.Context())
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		prefix := pgx.Identifier{mode.String()}.Sanitize() + "."
		locked := func(do func()) {
			_, err := other.Exec(t.Context(), "BEGIN; LOCK TABLE "+prefix+"account IN ACCESS EXCLUSIVE MODE")
			require.NoError(t, err)
			do()
			_, err = other.Exec(t.Context(), "ROLLBACK")
			require.NoError(t, err)
		}
		send := func(stmts ...entpgx.Stmt) error { return driver.PipelineOn(t.Context(), conn.Conn(), stmts...) }
		refused := func() {
			failed := stmtError(t, send(begin, patient, add("b", 1), add("a", 5), commit), 2, "add to b")
			require.Equal(t, lockNotAvailable, code(t, failed))
			require.False(t, failed.Unknown())
			require.EqualValues(t, 'I', conn.Conn().PgConn().TxStatus(), "its transaction is over")
		}
		locked(refused)
		locked(refused)
		require.NoError(t, send(begin, patient, add("b", 1), add("a", 5), commit))
		if inTurn || mode != pgx.QueryExecModeDescribeExec {
			locked(refused)
		}
		require.NoError(t, send(begin, patient, add("b", 1), add("a", 5), commit))
		require.EqualValues(t, 20, balance(t, driver, "a"))
		require.EqualValues(t, 12, balance(t, driver, "b"))
		var timeout string
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&timeout))
		require.Equal(t, "0", timeout, "the settings were the transaction's")
	})
}

// Statements that go ahead have no effect by themselves, so their failure counts as one of a
// pipeline that was not sent.
func TestSettingsThatFailAhead(t *testing.T) {
	t.Parallel()
	inModes(t, account, func(t *testing.T, driver *entpgx.Driver) {
		wrong := patient
		wrong.Args = []any{"soon"}
		for range 2 {
			failed := stmtError(t, driver.Pipeline(t.Context(), begin, wrong, add("a", 5), commit), 1, "settings")
			require.Equal(t, "22023", code(t, failed))
			require.False(t, failed.Unknown())
		}
		require.EqualValues(t, 10, balance(t, driver, "a"))
		require.NoError(t, driver.Pipeline(t.Context(), begin, patient, add("a", 5), commit))
		require.EqualValues(t, 15, balance(t, driver, "a"))
	})
}
