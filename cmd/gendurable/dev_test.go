package main

import (
	"context"
	"encoding/json"
	"errors"
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
)

// devRun is a run of gendurable dev.
type devRun struct {
	t    *testing.T
	url  string
	end  func()
	code chan exitCode
	errs *buffer
}

// dev starts a server and waits until it is up.
func dev(t *testing.T, args ...string) *devRun {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	d := &devRun{t: t, end: cancel, code: make(chan exitCode, 1), errs: &buffer{}}
	go func() {
		d.code <- run(ctx, append([]string{"dev", "--json"}, args...), &console{in: strings.NewReader(""), out: write, errs: d.errs})
		_ = write.Close()
	}()
	var s devServer
	require.NoError(t, json.NewDecoder(read).Decode(&s), d.errs)
	go func() { _, _ = io.Copy(io.Discard, read) }()
	t.Cleanup(func() { d.stop() })
	require.True(t, s.Started)
	d.url = s.URL
	return d
}

// stop interrupts the command, as ctrl-c does.
func (d *devRun) stop() {
	d.t.Helper()
	if d.end == nil {
		return
	}
	d.end()
	d.end = nil
	require.Equal(d.t, codeDone, <-d.code, d.errs)
}

// enterable is a folder that the server's account can enter.
func enterable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gendurable-dev-") //nolint:usetesting // t.TempDir is closed to other accounts
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func TestDevKeepsItsDataAndItsURL(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(enterable(t), "kept")
	h := &host{t: t}
	first := dev(t, "--dir", dir)
	h.url = first.url
	h.run("migrate", "status").is(codeDone)
	h.run("queue", "pause", "mail").is(codeDone)

	// A second run shows the server of the first.
	again := h.in("dev", "--dir", dir).is(codeDone).complains("already")
	require.Equal(t, first.url+"\n", again.out, "and nothing else, for shells")
	require.Equal(t, devServer{first.url, dir, false}, read[devServer](h.in("dev", "--dir", dir, "--json").is(codeDone)))

	first.stop()
	h.run("queue", "list").is(codeNoConnection)
	second := dev(t, "--dir", dir)
	require.Equal(t, first.url, second.url)
	h.run("queue", "list").is(codeDone).says("mail")

	// What a version from before the first release has left there is refused, and kept.
	conn, err := pgx.Connect(t.Context(), second.url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `UPDATE gendurable.atlas_schema_revisions SET version = '20261123050800'`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	second.stop()
	h.in("dev", "--dir", dir).is(codeSchema).complains("from before the first release").complains("migrate up --schema")
	dev(t, "--dir", dir, "--schema", "fresh")
	h.run("queue", "list", "--schema", "fresh").is(codeDone)
	h.run("queue", "list").is(codeSchema)
}

func TestDevEndsWhenItsServerDoes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(enterable(t), "kept")
	d := dev(t, "--dir", dir)
	pid, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	number, _, _ := strings.Cut(string(pid), "\n")
	require.NoError(t, exec.Command("kill", "-INT", number).Run())
	require.Equal(t, codeError, <-d.code)
	d.end = nil
	require.Contains(t, d.errs.String(), "the server has ended")
}

func TestDevFetchesNothingUnasked(t *testing.T) {
	t.Parallel()
	why := errors.New("Postgres is not installed")
	said := func(answer string, interactive bool) error {
		a := &app{console: &console{in: strings.NewReader(answer), out: io.Discard, errs: io.Discard, interactive: interactive}}
		return (&devCommand{}).fetch(t.Context(), a, why)
	}
	err := said("", false)
	require.ErrorIs(t, err, why)
	require.ErrorContains(t, err, "gendurable dev --fetch")
	require.NotContains(t, err.Error(), "\n")
	require.Equal(t, codeUnconfirmed, codeOf(said("n\n", true)))
}

func TestDevRefusesATakenPort(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(enterable(t), "kept")
	other, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	_, taken, err := net.SplitHostPort(other.Addr().String())
	require.NoError(t, err)
	(&host{t: t}).in("dev", "--dir", dir, "--port", taken).is(codeError).complains("port " + taken + " is taken")
}

// playVariable makes the test binary play the program.
const playVariable = "GENDURABLE_TEST_PLAY"

// For an account other than root, the server runs as that account, with its data where the system
// keeps the account's.
func TestDevInAHomeOfItsOwn(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("root plays somebody else here")
	}
	const nobody = 65534
	home := enterable(t)
	program := filepath.Join(home, "gendurable")
	content, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, content, 0o755))
	require.NoError(t, os.Chown(home, nobody, nobody))
	cmd := exec.Command(program, "dev", "--json")
	cmd.Env = []string{playVariable + "=1", "HOME=" + home, "PATH=/usr/bin:/bin"}
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	var s devServer
	require.NoError(t, json.NewDecoder(out).Decode(&s))
	require.Equal(t, filepath.Join(home, ".local", "share", "gendurable", "dev"), s.Directory)
	conn, err := pgx.Connect(t.Context(), s.URL)
	require.NoError(t, err)
	var rows int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM gendurable.gen_durable").Scan(&rows))
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	ended = true
	require.NoFileExists(t, filepath.Join(s.Directory, "data", "postmaster.pid"), "it was stopped in order")
}
