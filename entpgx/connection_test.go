package entpgx_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/steady"
)

// line is the network between a driver and its server: it counts turns and can be cut.
type line struct {
	mu     sync.Mutex
	turns  int  // changes from sending to receiving
	asking bool // the last transfer was a write
	cut    bool // requests arrive from now on, but no answer does
}

func (l *line) sent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking = true
}

// received reports whether the answer may arrive.
func (l *line) received() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asking {
		l.turns++
	}
	l.asking = false
	return !l.cut
}

func (l *line) cutAnswers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
}

func (l *line) count(during func()) int {
	l.mu.Lock()
	before := l.turns
	l.mu.Unlock()
	during()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turns - before
}

func (l *line) through(config *pgxpool.Config) {
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // one of a second's idleness would be a turn more
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &end{Conn: conn, line: l}, err
	}
}

// end is the client's end of a line.
type end struct {
	net.Conn
	line *line
}

func (e *end) Write(p []byte) (int, error) {
	e.line.sent()
	return e.Conn.Write(p)
}

func (e *end) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if n > 0 && !e.line.received() {
		return 0, net.ErrClosed
	}
	return n, err
}

func TestPipelineIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := &line{}
			driver := newDriver(t, account, mode, l.through)
			run := func() {
				require.NoError(t, driver.Pipeline(t.Context(), begin, add("a", 1), add("b", 1), add("a", 1), commit))
			}
			run() // the statements become known
			want := 1
			if mode == pgx.QueryExecModeDescribeExec {
				want = 2 // it asks for the types every time
			}
			require.Equal(t, want, l.count(run))
		})
	}
}

func TestLostAnswerOfACommitIsUnknown(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := &line{}
			driver := newDriver(t, account, mode, l.through)
			watch, err := pgx.Connect(t.Context(), driver.Pool().Config().ConnString())
			require.NoError(t, err)
			defer watch.Close(context.Background())
			stmts := []entpgx.Stmt{begin, add("a", 5), commit}
			require.NoError(t, driver.Pipeline(t.Context(), stmts...))

			l.cutAnswers()
			var failed *entpgx.StmtError
			require.ErrorAs(t, driver.Pipeline(t.Context(), stmts...), &failed)
			if mode == pgx.QueryExecModeDescribeExec { // cut at the description already
				require.False(t, failed.Unknown())
				return
			}
			require.True(t, failed.Unknown(), failed)
			require.False(t, pgconn.SafeToRetry(failed))
			require.NotErrorIs(t, failed, pgconn.ErrConnClosed, "as if it had been closed before")
			steady.Eventually(t, func() bool {
				var balance int64
				table := pgx.Identifier{mode.String(), "account"}.Sanitize()
				row := watch.QueryRow(t.Context(), "SELECT balance FROM "+table+" WHERE name = 'a'")
				return row.Scan(&balance) == nil && balance == 20
			}, "the transaction whose answer was lost did commit")
		})
	}
}

func TestPoolThatCannotConnect(t *testing.T) {
	t.Parallel()
	driver := newDriver(t, account, pgx.QueryExecModeCacheStatement)
	config := driver.Pool().Config()
	config.ConnConfig.Password = "wrong"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	failed := stmtError(t, entpgx.New(pool).Pipeline(t.Context(), begin, commit), 0, "begin")
	require.Equal(t, "28P01", code(t, failed))
	require.False(t, failed.Sent)
	require.False(t, failed.Unknown())
}

func TestDial(t *testing.T) {
	t.Parallel()
	l := &line{}
	var before, after int
	driver := newDriver(t, account, pgx.QueryExecModeCacheStatement, l.through, func(config *pgxpool.Config) {
		config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { before++; return nil }
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			after++
			_, err := conn.Exec(ctx, "SET work_mem = '7MB'")
			return err
		}
	})
	only, err := driver.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer only.Release()
	before, after = 0, 0

	conn, err := driver.Dial(t.Context())
	require.NoError(t, err, "the pool is exhausted")
	defer conn.Close(context.Background())
	require.Equal(t, []int{1, 1}, []int{before, after})
	var memory string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW work_mem").Scan(&memory))
	require.Equal(t, "7MB", memory)

	tx, err := only.Begin(t.Context())
	require.NoError(t, err)
	_, err = entpgx.Within(tx).Dial(t.Context())
	require.ErrorContains(t, err, "transaction")
}
