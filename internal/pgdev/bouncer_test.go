package pgdev

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func bouncer(t *testing.T, upstream string, options ...Option) *Bouncer {
	t.Helper()
	b, err := StartBouncer(t.Context(), upstream, options...)
	skipWithoutBouncer(t, err)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })
	return b
}

// skipWithoutBouncer skips the test if there is no PgBouncer, except in continuous integration,
// which installs it.
func skipWithoutBouncer(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
}

func TestTheBouncerPoolsAsTold(t *testing.T) {
	t.Parallel()
	direct := start(t, WithoutFsync()).URL("")
	// With pooled transactions, all clients share one connection to the server; with pooled sessions,
	// each has its own.
	for mode, shared := range map[string]bool{"transaction": true, "session": false} {
		b := bouncer(t, direct, WithSetting("pool_mode", mode))
		pid := func(conn *pgx.Conn) (pid uint32) {
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid))
			return pid
		}
		first, second := connect(t, b.URL(direct)), connect(t, b.URL(direct))
		require.Equal(t, shared, pid(first) == pid(second), mode)
	}
}

func TestNobodyEntersThroughTheBouncerWithoutThePassword(t *testing.T) {
	t.Parallel()
	direct := start(t, WithoutFsync()).URL("")
	wrong, err := pgx.ParseConfig(bouncer(t, direct).URL(direct))
	require.NoError(t, err)
	wrong.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), wrong)
	require.ErrorContains(t, err, "08P01")
}

func TestTheBouncerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	direct := start(t, WithoutFsync()).URL("")
	b := bouncer(t, direct)
	through, err := url.Parse(b.URL(direct))
	require.NoError(t, err)
	require.NoError(t, b.Stop())
	require.NoDirExists(t, b.dir)
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", through.Host)
	require.Error(t, err)
	require.NoError(t, b.Stop())
}

func TestABouncerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := StartBouncer(t.Context(), start(t, WithoutFsync()).URL(""), WithSetting("pool_mode", "nonsense"))
	skipWithoutBouncer(t, err)
	require.ErrorContains(t, err, "nonsense")
}

func TestForbidServices(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy-rc.d")
	allow, err := forbidServices(policy)
	require.NoError(t, err)
	info, err := os.Stat(policy)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o111, "a script that cannot run forbids nothing")
	require.NoError(t, allow())
	require.NoFileExists(t, policy)

	require.NoError(t, os.WriteFile(policy, []byte("the administrator's"), 0o600))
	allow, err = forbidServices(policy)
	require.NoError(t, err)
	require.NoError(t, allow())
	require.FileExists(t, policy)
}
