package soak

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/internal/tier"
)

// build builds the soak's program. The test's own binary may be built for the race detector, which
// fourteen processes on two cores cannot afford.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "soak")
	out, err := exec.Command("go", "build", "-o", program, "./cmd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// TestNothingIsLeftOfAnInterruptedSoak ends a soak as the terminal does, and in the worst way.
func TestNothingIsLeftOfAnInterruptedSoak(t *testing.T) {
	tier.Needs(t, tier.Proof)
	program := build(t)
	for _, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			directory, err := os.MkdirTemp("", "gendurable-soaks-") //nolint:usetesting // the test's own may not be entered by the server's account
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(directory)) })
			require.NoError(t, os.Chmod(directory, 0o755))
			cmd := exec.Command(program, "-seconds", "60", "-seed", "1")
			cmd.Env = append(os.Environ(), "TMPDIR="+directory)
			cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
			require.NoError(t, cmd.Start())
			defer cmd.Process.Kill()
			require.Eventually(t, func() bool { return slices.Contains(using(t, directory), "T") }, time.Minute, 50*time.Millisecond,
				"no worker stands still")
			require.NoError(t, cmd.Process.Signal(how))
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

// using lists the states of the processes that work below a directory, or have a file there open:
// these are all processes of a soak. A stopped one has the state T.
func using(t *testing.T, directory string) (states []string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, p := range processes {
		links, _ := filepath.Glob(p + "/fd/*") // some processes end meanwhile
		if !slices.ContainsFunc(append(links, p+"/cwd"), func(link string) bool {
			file, err := os.Readlink(link)
			return err == nil && strings.HasPrefix(file, directory+"/")
		}) {
			continue
		}
		if stat, err := os.ReadFile(p + "/stat"); err == nil {
			_, after, _ := strings.Cut(string(stat), ") ")
			states = append(states, after[:1])
		}
	}
	return states
}
