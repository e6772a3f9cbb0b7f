// Package node prepares programs of Node for the tests. "make node" installs their packages before
// the tests run: no test waits for a download.
package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Found reports whether this machine has Node and npm.
func Found() bool {
	_, err := exec.LookPath("npm")
	return err == nil
}

// Prepare copies a program of the current directory to dir, beside the packages that
// package-lock.json names. The current directory is integration/<name>, whose packages are in
// .cache/node/<name>.
func Prepare(dir, program string) error {
	here, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the program %s: %w", program, err)
	}
	packages := filepath.Join(here, "..", "..", ".cache", "node", filepath.Base(here), "node_modules")
	if _, err := os.Stat(packages); err != nil {
		return errors.Join(errors.New("the packages of Node are missing: make node installs them"), err)
	}
	text, err := os.ReadFile(program) //nolint:gosec // the test's own
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, program), text, 0o600); err != nil { //nolint:gosec // the test's own
		return fmt.Errorf("copy the program: %w", err)
	}
	// Node looks for packages beside the program, and for the packages of those where the link leads.
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		return fmt.Errorf("link the packages: %w", err)
	}
	return nil
}
