package pgdev

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
)

// ErrNotInstalled is returned, with the command that installs it, by Start and StartBouncer on a
// machine that lacks the program.
var ErrNotInstalled = errors.New("not installed")

// programs is where systems keep the binaries of each major version, outside of PATH.
var programs = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian
	"/usr/pgsql-*/bin",                                   // Red Hat
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
}

// findBinaries returns the directory that holds initdb and postgres: the one in PATH, else the
// newest that a system keeps elsewhere.
func findBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// A link in PATH leads to the directory that also holds postgres and its libraries.
		if path, err = filepath.EvalSymlinks(path); err == nil && holdsServer(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	return newestBinaries(programs...)
}

// newestBinaries returns the directory of the highest version among those that match a pattern
// …<version>/bin.
func newestBinaries(patterns ...string) (string, error) {
	var found []string
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("look for Postgres: %w", err)
		}
		found = append(found, dirs...)
	}
	found = slices.DeleteFunc(found, func(dir string) bool { return !holdsServer(dir) })
	if len(found) == 0 {
		return "", missing("Postgres", "postgresql", "initdb and postgres are neither in PATH nor where systems keep them")
	}
	return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
}

var trailingNumber = regexp.MustCompile(`\d+$`)

func version(dir string) int {
	major, err := strconv.Atoi(trailingNumber.FindString(filepath.Base(filepath.Dir(dir))))
	if err != nil {
		return 0
	}
	return major
}

func holdsServer(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// missing is the error that a program's package has to be installed, with the command that does it
// here.
func missing(program, pkg, why string) error {
	command := "its package"
	switch {
	case runtime.GOOS == "darwin":
		command = "brew install " + pkg
	case onPath("apt-get") && os.Geteuid() == 0:
		command = "apt-get install " + pkg
	case onPath("apt-get"):
		command = "sudo apt-get install " + pkg
	case onPath("brew"):
		command = "brew install " + pkg
	}
	return fmt.Errorf("%s is %w: %s; install it with: %s", program, ErrNotInstalled, why, command)
}

func onPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}
