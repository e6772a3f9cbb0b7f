// Package node installs what programs of Node in the tests need.
package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Found reports whether there is Node here, and npm.
func Found() bool {
	_, err := exec.LookPath("npm")
	return err == nil
}

// Install copies package.json, package-lock.json and a program of the current directory to dir, and installs there what they name.
func Install(ctx context.Context, dir, program string) error {
	for _, name := range []string{"package.json", "package-lock.json", program} {
		text, err := os.ReadFile(name) //nolint:gosec // the test's own
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600) //nolint:gosec // the test's own
		}
		if err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, out)
	}
	return nil
}
