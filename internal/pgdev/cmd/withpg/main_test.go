package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// playVariable makes the test binary play withpg itself.
const playVariable = "WITHPG_TEST_PLAY"

func TestMain(m *testing.M) {
	if os.Getenv(playVariable) == "" {
		goleak.VerifyTestMain(m) // and exits
	}
	main()
}

// withpg prepares a run of the program. Unless url is "", the environment variable holds it.
func withpg(url string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], arguments...)
	cmd.Env = append(os.Environ(), playVariable+"=1", urlVariable+"="+url)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestCommandGetsTheServerAndItsExitCodeIsPassedOn(t *testing.T) {
	t.Parallel()
	cmd := withpg("", "-set", "work_mem=7MB", "sh", "-c", `echo "$`+urlVariable+`"; exit 7`)
	out, _ := cmd.Output()
	require.Equal(t, 7, cmd.ProcessState.ExitCode())
	require.True(t, strings.HasPrefix(string(out), "postgres://"), "got %q", out)
}

func TestGivenServerIsUsed(t *testing.T) {
	t.Parallel()
	out, err := withpg("postgres://given", "sh", "-c", `echo "$`+urlVariable+`"`).Output()
	require.NoError(t, err)
	require.Equal(t, "postgres://given\n", string(out))
}

func TestSignalIsPassedOn(t *testing.T) {
	t.Parallel()
	// A shell that waits runs its trap at once.
	cmd := withpg("postgres://given", "sh", "-c", `sleep 60 & trap "kill $!; exit 5" TERM; echo ready; wait`)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ready := make([]byte, len("ready\n"))
	_, err = io.ReadFull(stdout, ready)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	require.Equal(t, 5, cmd.ProcessState.ExitCode())
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for name, arguments := range map[string][]string{
		"no command":      {},
		"setting without": {"-set", "work_mem", "true"},
		"fetch nowhere":   {"-fetch", "18"},
		"unknown flag":    {"-nope", "true"},
	} {
		code, err := run(arguments)
		require.Error(t, err, name)
		require.Equal(t, 2, code, name)
	}
}

func TestCommandThatDoesNotExist(t *testing.T) {
	t.Setenv(urlVariable, "postgres://given")
	code, err := run([]string{"no-such-command-anywhere"})
	require.Error(t, err)
	require.Equal(t, 127, code)
}
