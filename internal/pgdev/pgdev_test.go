package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gendurable/gendurable/internal/steady"
)

// ownerVariable makes the test binary play the owner of a cluster, which then dies without Stop.
const ownerVariable = "PGDEV_TEST_OWNER"

const watchReady = "watching"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(ownerVariable) {
	case "":
		goleak.VerifyTestMain(m) // and exits
	case "watch":
		err = ownWatched()
	default:
		err = ownCluster()
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func ownCluster() error {
	cluster, err := Start(context.Background(), WithoutFsync())
	if err == nil {
		_, err = os.Stdout.WriteString(cluster.URL("") + "\n")
	}
	return err
}

// ownWatched starts a process that outlives this one unless it is watched.
func ownWatched() error {
	cmd := exec.Command("sleep", "600")
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := watchOwner(cmd.Process.Pid, &syscall.SysProcAttr{}); err != nil {
		return err
	}
	_, err := os.Stdout.WriteString(watchReady)
	return err
}

// start starts a cluster without fsync, which only a crash of the machine needs, unless the options
// have it.
func start(t *testing.T, options ...Option) *Cluster {
	t.Helper()
	cluster, err := Start(t.Context(), append([]Option{WithSetting("fsync", "off")}, options...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop()) })
	return cluster
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func setting(t *testing.T, conn *pgx.Conn, name string) string {
	t.Helper()
	var value string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value))
	return value
}

func TestSettings(t *testing.T) {
	t.Parallel()
	durable, err := Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, durable.Stop()) })
	plain := connect(t, durable.URL(""))
	require.Equal(t, "on", setting(t, plain, "fsync"))
	require.Equal(t, "UTF8", setting(t, plain, "server_encoding"))

	fast := connect(t, start(t, WithoutFsync(), WithSetting("work_mem", "1MB"), WithSetting("work_mem", "7MB")).URL(""))
	require.Equal(t, "off", setting(t, fast, "fsync"))
	require.Equal(t, "7MB", setting(t, fast, "work_mem"))
}

func TestNobodyEntersWithoutThePassword(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig(start(t, WithoutFsync()).URL(""))
	require.NoError(t, err)
	config.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.ErrorContains(t, err, "28P01")
}

func TestCommittedDataOutliveEveryEndOfTheServer(t *testing.T) {
	t.Parallel()
	cluster := start(t)
	url := cluster.URL("")
	_, err := connect(t, url).Exec(t.Context(), "CREATE TABLE kept (name text)")
	require.NoError(t, err)

	ends := []struct {
		name string
		end  func() error
	}{
		{"shutdown by the restart", func() error { return nil }},
		{"immediate", cluster.StopImmediate},
		{"killed", cluster.Kill},
	}
	for _, end := range ends {
		_, err := connect(t, url).Exec(t.Context(), "INSERT INTO kept VALUES ($1)", end.name)
		require.NoError(t, err)
		require.NoError(t, end.end(), end.name)
		require.NoError(t, cluster.Restart(t.Context()), end.name)
		require.Equal(t, url, cluster.URL(""))
		var count int
		row := connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM kept WHERE name = $1", end.name)
		require.NoError(t, row.Scan(&count))
		require.Equal(t, 1, count, end.name)
	}
}

func TestServerIsDownBetweenKillAndRestart(t *testing.T) {
	t.Parallel()
	cluster := start(t, WithoutFsync())
	require.NoError(t, cluster.Kill())
	steady.Eventually(t, func() bool { // until its children have noticed, a connection may be reset
		_, err := pgx.Connect(t.Context(), cluster.URL(""))
		require.Error(t, err)
		return strings.Contains(err.Error(), "refused")
	})
}

func TestGivenDirectoryKeepsItsDataAndItsURL(t *testing.T) {
	t.Parallel()
	path := filepath.Join(enterable(t), "deep", "kept")
	dir := WithDirectory(path)

	first := start(t, dir)
	url := first.URL("")
	_, err := connect(t, url).Exec(t.Context(), "CREATE TABLE kept AS SELECT 7 AS seven")
	require.NoError(t, err)
	_, err = Start(t.Context(), dir)
	used, ok := errors.AsType[*InUseError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, InUseError{Directory: path, URL: url}, *used)
	require.NoError(t, first.Stop())
	require.Empty(t, published(path))

	again := start(t, dir)
	require.Equal(t, url, again.URL(""))
	var seven int
	require.NoError(t, connect(t, url).QueryRow(t.Context(), "SELECT seven FROM kept").Scan(&seven))
	require.Equal(t, 7, seven)
	require.NoError(t, again.Stop())

	// Another listener has the port now, so the next server uses another one, unless WithPort names
	// the port.
	at, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lastPort(path)))
	require.NoError(t, err)
	defer at.Close()
	_, err = Start(t.Context(), dir, WithPort(lastPort(path)))
	require.ErrorContains(t, err, "is taken")
	moved := start(t, dir)
	require.NotEqual(t, url, moved.URL(""))
	require.Equal(t, moved.URL(""), published(path))
}

func TestWaitTellsOfAServerThatHasEnded(t *testing.T) {
	t.Parallel()
	cluster := start(t, WithoutFsync())
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, cluster.Wait(ended))
	require.NoError(t, cluster.server.process.Signal(shutdownFast))
	require.ErrorContains(t, cluster.Wait(t.Context()), "database system is shut down")
}

// A shell watches owners on systems whose kernel does not report a parent's death.
func TestAProcessIsStoppedWhenItsOwnerDies(t *testing.T) {
	t.Parallel()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=watch")
	stdin, err := owner.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	ready := make([]byte, len(watchReady))
	_, err = io.ReadFull(stdout, ready)
	require.NoError(t, err)
	require.NoError(t, owner.Process.Kill())
	// The process has the owner's output, which ends when both have ended.
	_, err = io.ReadAll(stdout)
	require.NoError(t, err)
	_ = owner.Wait()
}

func TestAReleasedProcessLivesOn(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	release, err := watchOwner(cmd.Process.Pid, &syscall.SysProcAttr{})
	require.NoError(t, err)
	release()
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait(), "it ended by a signal")
}

// A program that is starting has every open file of its parent until it executes, also the lock
// file of a stopped cluster.
func TestGivenDirectoryIsFreeWhenItsClusterStopped(t *testing.T) {
	t.Parallel()
	dir := WithDirectory(filepath.Join(enterable(t), "kept"))
	first := start(t, dir, WithoutFsync())
	inherited, err := syscall.Dup(int(first.lock.Fd()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Close(inherited)) })
	require.NoError(t, first.Stop())
	start(t, dir, WithoutFsync())
}

func TestStopRemovesEverything(t *testing.T) {
	t.Parallel()
	cluster := start(t, WithoutFsync())
	require.DirExists(t, cluster.dir)
	require.NoError(t, cluster.Stop())
	require.NoDirExists(t, cluster.dir)
	require.NoError(t, cluster.Stop(), "a second Stop")
	require.ErrorContains(t, cluster.Restart(t.Context()), "stopped for good")
}

func TestFailedStartReportsTheLogAndLeavesNothing(t *testing.T) {
	tmp := temporary(t)
	_, err := Start(t.Context(), WithSetting("no_such_parameter", "1"))
	require.ErrorContains(t, err, "no_such_parameter")
	require.Empty(t, clusters(t, tmp))
}

func TestServerGoesDownWithItsOwnerAndIsSweptByTheNextStart(t *testing.T) {
	tmp := temporary(t)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = os.Stderr
	stdin, err := owner.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	url := make([]byte, 512)
	n, err := stdout.Read(url)
	require.NoError(t, err)
	conn := connect(t, string(url[:n-1]))
	left := clusters(t, tmp)
	require.Len(t, left, 1)

	sweepLeftovers(tmp)
	require.DirExists(t, left[0], "swept although its owner lives")

	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	steady.Eventually(t, func() bool { return conn.Ping(t.Context()) != nil })
	require.DirExists(t, left[0])
	steady.Eventually(t, func() bool {
		sweepLeftovers(tmp)
		return len(clusters(t, tmp)) == 0
	}, "the lock outlived the server")
}

// temporary gives the test a new directory, in which clusters are made.
func temporary(t *testing.T) string {
	t.Helper()
	dir := enterable(t)
	t.Setenv("TMPDIR", dir)
	return dir
}

// enterable makes a temporary directory that the server's account can enter.
func enterable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgdev-test-") //nolint:usetesting // t.TempDir is closed to other accounts
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func clusters(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, directoryPattern+"*"))
	require.NoError(t, err)
	return found
}
