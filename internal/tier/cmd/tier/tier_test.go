package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// playVariable makes this test binary the program.
const playVariable = "GENDURABLE_TEST_PLAY"

func TestMain(m *testing.M) {
	if os.Getenv(playVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// said is what go test -json prints of a package with a test of each kind, behind a line of the
// command around it.
const said = `withpg: hello
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    a_test.go:1: proof: 5 orders\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":2}
{"Action":"output","Package":"p","Test":"TestBad/sub","Output":"    a_test.go:2: broken\n"}
{"Action":"fail","Package":"p","Test":"TestBad/sub","Elapsed":1}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":3}
{"Action":"output","Package":"p","Test":"TestLater","Output":"--- SKIP: TestLater (0.00s)\n"}
{"Action":"output","Package":"p","Test":"TestLater","Output":"    a_test.go:3: runs in make ci\n"}
{"Action":"skip","Package":"p","Test":"TestLater","Elapsed":0}
{"Action":"output","Package":"p","Output":"FAIL\tp\t6.0s\n"}
{"Action":"fail","Package":"p","Elapsed":6}
{"Action":"output","Package":"q","Output":"PASS\n"}
{"Action":"output","Package":"q","Output":"ok  \tq\t1.0s\n"}
{"Action":"pass","Package":"q","Elapsed":1}
{"ImportPath":"r","Action":"build-output","Output":"r.go:1: undefined: x\n"}
`

func TestOutputIsCondensed(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	o, err := condense(strings.NewReader(said), &printed, false)
	require.NoError(t, err)
	require.Equal(t, "withpg: hello\n    a_test.go:2: broken\nFAIL\tp\t6.0s\nok  \tq\t1.0s\nr.go:1: undefined: x\n"+
		"1 skipped: runs in make ci\n1 passed, 1 failed, 1 skipped\n", printed.String())
	require.Equal(t, []string{"5 orders"}, o.Figures)
	require.Equal(t, []timed{{"p TestBad", 3}, {"p TestGood", 2}, {"p TestLater", 0}}, slowest(o.Tests))
	require.Equal(t, []timed{{"p", 6}, {"q", 1}}, slowest(o.Packages))

	printed.Reset()
	_, err = condense(strings.NewReader(said), &printed, true)
	require.NoError(t, err)
	require.Contains(t, printed.String(), "proof: 5 orders")
}

// The time of a package was over: its report names the tests that were running.
func TestTestsThatHaveNotEndedAreNamed(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	_, err := condense(strings.NewReader(`{"Action":"output","Package":"p","Test":"TestSlow","Output":"=== RUN   TestSlow\n"}
{"Action":"output","Package":"p","Test":"TestNext/sub","Output":"=== RUN   TestNext/sub\n"}
{"Action":"output","Package":"p","Test":"TestNext/sub","Output":"panic: test timed out after 7m0s\n"}
{"Action":"output","Package":"p","Test":"TestNext/sub","Output":"\t\tTestSlow (7m0s)\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t420.0s\n"}
{"Action":"fail","Package":"p","Elapsed":420}
`), &printed, false)
	require.NoError(t, err)
	require.Equal(t, "FAIL\tp\t420.0s\npanic: test timed out after 7m0s\n\t\tTestSlow (7m0s)\n0 passed, 0 failed, 0 skipped\n", printed.String())
}

func TestStagesAreReported(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "new", "log")
	require.NoError(t, begin(log))
	require.NoError(t, stage(log, "download", []string{"true"}))
	file := filepath.Join(t.TempDir(), "said")
	require.NoError(t, os.WriteFile(file, []byte(said), 0o600))
	require.NoError(t, stage(log, "test", []string{"sh", "-c", `cat "$0"`, file, "-json"}))
	var exit *exec.ExitError
	require.ErrorAs(t, stage(log, "worse", []string{"sh", "-c", "exit 3"}), &exit)
	require.Equal(t, 3, exit.ExitCode())

	var printed bytes.Buffer
	require.NoError(t, report(&printed, log))
	for _, want := range []string{"download", "test", "worse", "all", "slowest packages:\n    6.0 s  p", "slowest tests:\n    3.0 s  p TestBad"} {
		require.Contains(t, printed.String(), want)
	}
	require.NoError(t, begin(log))
	require.NoError(t, report(&printed, log))
	require.Error(t, begin(""))
}

const rows = `# Proof

| part | proves | date | commit | minutes | cases | figures |
|---|---|---|---|---|---|---|
| model | histories |  |  |  |  |  |
| soak | faults | 2026-01-02 | abc | 3 | 7 | none |
`

// A part of make proof writes its own row if it passes; a release needs all rows of one commit.
func TestAProofWritesItsRow(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, command := range [][]string{
		{"init", "-q"}, {"config", "user.email", "a@b"}, {"config", "user.name", "a"},
		{"commit", "-q", "--allow-empty", "-m", "first"},
	} {
		_, err := git(command...)
		require.NoError(t, err)
	}
	require.NoError(t, os.Mkdir("docs", 0o755))
	require.NoError(t, os.WriteFile(page, []byte(rows), 0o600))
	file := filepath.Join(dir, "said")
	require.NoError(t, os.WriteFile(file, []byte(said), 0o600))

	require.ErrorContains(t, proof("none", []string{"true"}), `no row for "none"`)
	require.Error(t, proof("model", []string{"false"}))
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, rows, string(content))
	require.ErrorContains(t, proven(), "model was never run")

	require.NoError(t, proof("model", []string{"sh", "-c", `cat "$0"`, file, "-json"}))
	commit, err := git("rev-parse", "--short=10", "HEAD")
	require.NoError(t, err)
	row, err := rowOf("model")
	require.NoError(t, err)
	require.Equal(t, []string{commit, "0", "1", "5 orders"}, row.cells[cellCommit:])
	require.ErrorContains(t, proven(), "a release needs all parts of one commit")

	require.NoError(t, proof("soak", []string{"true"}))
	require.NoError(t, proven())

	change := func(file string) {
		require.NoError(t, os.WriteFile(file, []byte("1"), 0o600))
		for _, command := range [][]string{{"add", file}, {"commit", "-q", "-m", "change"}} {
			_, err := git(command...)
			require.NoError(t, err)
		}
	}
	change("docs/hazards.txt")
	require.NoError(t, proven())
	change("code")
	require.ErrorContains(t, proven(), "after which this changed: code")
	require.NoError(t, os.WriteFile("code", []byte("2"), 0o600))
	require.NoError(t, proof("soak", []string{"true"}))
	require.ErrorContains(t, proven(), "soak was run on what was not committed")
}

func TestACommandRunsBesideALoad(t *testing.T) {
	t.Setenv(playVariable, "1")
	require.NoError(t, beside(2, []string{"true"}))
	var exit *exec.ExitError
	require.ErrorAs(t, beside(1, []string{"sh", "-c", "exit 4"}), &exit)
	require.Equal(t, 4, exit.ExitCode())
	self, err := os.Executable()
	require.NoError(t, err)
	alone := exec.CommandContext(t.Context(), self, spin) // its input has ended
	require.NoError(t, alone.Run())
}

// The child of a child counts, and a process that runs beside them does not.
func TestTheLargestProcessIsNamed(t *testing.T) {
	t.Parallel()
	if _, ok := available(); !ok {
		t.Skip("the system does not say")
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", `sh -c 'echo; read line'; true`)
	in, err := shell.StdinPipe()
	require.NoError(t, err)
	out, err := shell.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	_, err = out.Read(make([]byte, 1)) // the inner shell runs
	require.NoError(t, err)

	size, name := largestBelow(shell.Process.Pid)
	require.Positive(t, size)
	require.Contains(t, []string{"sh", "dash", "bash"}, name)
	self, _ := largestBelow(os.Getpid())
	require.GreaterOrEqual(t, self, size)

	require.NoError(t, in.Close())
	require.NoError(t, shell.Wait())
	size, name = largestBelow(shell.Process.Pid)
	require.Zero(t, size)
	require.Empty(t, name)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{nil, {"stage"}, {"stage", "a"}, {"proof", "a"}, {"beside", "2"}, {"what"}} {
		require.ErrorIs(t, run(arguments), errUsage, arguments)
	}
	require.ErrorContains(t, run([]string{"beside", "none", "true"}), "number")
}
