//go:build unix

package pgdev

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// PristineVariable names a directory that [Start] keeps new data directories in, one of each kind,
// and copies them from: initdb takes ten times as long. The program that sets it for the tests
// removes the directory: see [Cluster.Pristine].
const PristineVariable = "GENDURABLE_TEST_INITDB"

// Pristine returns a value for [PristineVariable] that serves until the cluster is stopped.
func (c *Cluster) Pristine() string { return filepath.Join(c.dir, "pristine") }

// pristine copies a data directory that has never been used, and makes it first if it is not
// there. It reports false if it must not, so that the caller calls initdb itself: a directory of
// [WithDirectory] lives longer than the tests, and servers of a Citus cluster share a password.
func (c *Cluster) pristine(ctx context.Context, to, auth string) (copied bool, err error) {
	parent := os.Getenv(PristineVariable)
	if parent == "" || c.kept || c.peers {
		return false, nil
	}
	kind := sha256.Sum256([]byte(c.binaries + " " + auth))
	dir := filepath.Join(parent, hex.EncodeToString(kind[:8]))
	if err := c.makePristine(ctx, dir, auth); err != nil {
		return false, fmt.Errorf("make a data directory to copy: %w", err)
	}
	password, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil {
		return false, fmt.Errorf("read the password of the copy: %w", err)
	}
	c.password = string(password)
	if out, err := c.account.command(ctx, "cp", "-Rp", filepath.Join(dir, "data"), to).CombinedOutput(); err != nil {
		return false, fmt.Errorf("copy the data directory: %w\n%s", err, out)
	}
	return true, nil
}

// makePristine makes a data directory, with its password beside it, unless it is there. One process
// at a time does.
func (c *Cluster) makePristine(ctx context.Context, dir, auth string) error {
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
		if err := c.account.own(d); err != nil {
			return err
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer releaseLock(lock) //nolint:errcheck // the file is closed in any case
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		return nil
	}
	passwordFile, incomplete := filepath.Join(dir, "password"), filepath.Join(dir, "incomplete")
	err = os.WriteFile(passwordFile, []byte(c.password), 0o600)
	if err := errors.Join(err, c.account.own(passwordFile), os.RemoveAll(incomplete)); err != nil {
		return err
	}
	if err := c.initdb(ctx, incomplete, passwordFile, auth); err != nil {
		return err
	}
	return os.Rename(incomplete, filepath.Join(dir, "data"))
}
