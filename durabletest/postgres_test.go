package durabletest_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/durabletest"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/tier"
)

// If the environment names no server, all kits use the same one of the process's own.
func TestKitsStartAServer(t *testing.T) {
	t.Setenv("GENDURABLE_TEST_URL", "")
	t.Setenv("DATABASE_URL", "")
	host := func() string {
		kit := durabletest.New(t, durabletest.Config{Machines: []fsm.Definition{shop{}.Definition(), parcels}})
		id := insert(t, kit, checkout.New(order{ID: 42}))
		durabletest.RequireDrain(t, kit)
		durabletest.RequireParked(t, kit, id, "paid", "refused")
		at, err := url.Parse(kit.URL())
		require.NoError(t, err)
		return at.Host
	}
	first := host()
	require.Equal(t, first, host())
}

// Accounts other than root can start a server, too.
func TestKitsStartAServerForOthersThanRoot(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.CI) // each server is initialised and migrated anew
	if os.Geteuid() != 0 {
		t.Skip("root plays somebody else here")
	}
	const nobody = 65534
	home, err := os.MkdirTemp("", "durabletest-") //nolint:usetesting // t.TempDir is closed to other accounts
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	require.NoError(t, os.Chown(home, nobody, nobody))
	program := filepath.Join(home, "tests")
	content, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, content, 0o755))
	require.NoError(t, os.Chmod(home, 0o755))
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestKitsStartAServer$", "-test.v")
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=/usr/bin:/bin"}
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestKitsStartAServer")
}

func TestThenStop(t *testing.T) {
	t.Setenv("GENDURABLE_TEST_URL", "")
	t.Setenv("DATABASE_URL", "")
	var at string
	tests := testsOf(func() int {
		t.Run("one", func(t *testing.T) { at = durabletest.New(t, durabletest.Config{}).URL() })
		return 3
	})
	require.Equal(t, 3, durabletest.ThenStop(tests).Run())
	_, err := pgx.Connect(t.Context(), at)
	require.Error(t, err, "the server lives on")
	require.Zero(t, durabletest.ThenStop(testsOf(func() int { return 0 })).Run(), "there is nothing to stop")
}

type testsOf func() int

func (f testsOf) Run() int { return f() }

func TestStartServerMigratesAndKeeps(t *testing.T) {
	t.Parallel()
	tier.Needs(t, tier.CI)                          // likewise; cmd/gendurable keeps a server in make test
	parent, err := os.MkdirTemp("", "durabletest-") //nolint:usetesting // t.TempDir is closed to other accounts
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(parent)) })
	require.NoError(t, os.Chmod(parent, 0o755))
	c := durabletest.ServerConfig{Directory: filepath.Join(parent, "kept"), Schema: "other", Settings: map[string]string{"work_mem": "7MB"}}
	insertOne := func(rows int) string {
		s, err := durabletest.StartServer(t.Context(), c)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Stop()) }()
		conn, err := pgx.Connect(t.Context(), s.URL())
		require.NoError(t, err)
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), `INSERT INTO other.gen_durable (fsm, step) VALUES ('a', 'b')`)
		require.NoError(t, err)
		var found int
		var memory string
		row := conn.QueryRow(t.Context(), `SELECT count(*), current_setting('work_mem') FROM other.gen_durable`)
		require.NoError(t, row.Scan(&found, &memory))
		require.Equal(t, rows, found)
		require.Equal(t, "7MB", memory)
		return s.URL()
	}
	require.Equal(t, insertOne(1), insertOne(2))
}
