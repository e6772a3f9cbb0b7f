package soak

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// build makes the soak's program. Not the test's own binary: that may be built for the race detector, which fourteen processes on two
// cores cannot afford.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "soak")
	out, err := exec.Command("go", "build", "-o", program, "./cmd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestSoak is a short soak, with floors in proportion. GENDURABLE_SOAK_SEED repeats the plan of another one.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of faults")
	}
	cmd := exec.CommandContext(t.Context(), build(t), "-seconds", "60", "-seed", seed())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it cleans up
	cmd.WaitDelay = 30 * time.Second
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Run())
}

func seed() string {
	if s := os.Getenv("GENDURABLE_SOAK_SEED"); s != "" {
		return s
	}
	return "0"
}

// TestNothingIsLeftOfAnInterruptedSoak ends a soak as the terminal does, and in the worst way.
func TestNothingIsLeftOfAnInterruptedSoak(t *testing.T) {
	program := build(t)
	for _, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			directory := t.TempDir()
			require.NoError(t, os.Chmod(directory, 0o755)) // the server may run as another account
			cmd := exec.Command(program, "-seconds", "60", "-seed", "1")
			cmd.Env = append(os.Environ(), "TMPDIR="+directory)
			cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
			require.NoError(t, cmd.Start())
			session := cmd.Process.Pid
			// Everyone is there, and some have been killed or stand still.
			require.Eventually(t, func() bool { return len(using(t, directory)) > workers }, time.Minute, 50*time.Millisecond)
			require.NoError(t, syscall.Kill(session, how))
			require.Error(t, cmd.Wait())
			require.Eventually(t, func() bool { return len(using(t, directory)) == 0 }, time.Minute, 50*time.Millisecond, "processes are left")
			if how == syscall.SIGINT {
				left, err := os.ReadDir(directory)
				require.NoError(t, err)
				require.Empty(t, left, "files are left")
			}
		})
	}
}

// using lists the processes that have a file below a directory open, or work in it: all of a soak's.
func using(t *testing.T, directory string) (pids []int) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, p := range processes {
		links, _ := filepath.Glob(p + "/fd/*") // some end meanwhile
		for _, l := range append(links, p+"/cwd") {
			file, err := os.Readlink(l)
			if errors.Is(err, os.ErrNotExist) || err != nil {
				continue
			}
			if inside, err := filepath.Match(directory+"/*/*", file); err == nil && inside {
				pid, err := strconv.Atoi(filepath.Base(p))
				require.NoError(t, err)
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

