package pgdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	directoryPattern = "gendurable-pg-"
	lockName         = "lock"
)

// newDirectory makes the directory of a cluster and locks it. The lock belongs to the open file,
// which the server inherits: it is held while the owner or the server lives, whatever happens to
// process ids meanwhile.
func newDirectory(parent string, runAs *account) (string, *os.File, error) {
	dir, err := os.MkdirTemp(parent, directoryPattern)
	if err != nil {
		return "", nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	// Locked first and named after: a sweep meets either no lock file or a held one.
	unnamed := filepath.Join(dir, "unnamed")
	lock, err := takeLock(unnamed)
	if err == nil {
		err = errors.Join(os.Rename(unnamed, filepath.Join(dir, lockName)), runAs.own(dir))
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("set up the cluster's directory: %w", err)
	}
	return dir, lock, nil
}

// openDirectory locks a directory that outlives its cluster, and makes it where it is missing.
func openDirectory(dir string, runAs *account) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("make the way to the cluster's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	lock, err := takeLock(filepath.Join(dir, lockName))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("the cluster in %s is in use", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the cluster's directory: %w", err)
	}
	if err := runAs.own(dir); err != nil {
		return nil, errors.Join(err, releaseLock(lock))
	}
	return lock, nil
}

func takeLock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// releaseLock gives the lock up at once. A close alone would not do: a program that the owner
// starts at that moment, whatever it is, has every open file until it executes, and would hold the
// lock for as long.
func releaseLock(lock *os.File) error {
	return errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close())
}

// sweepLeftovers removes the directories of clusters whose owner and server are gone. One without a
// lock file is just being made by another process; one that cannot be locked or removed belongs to
// somebody else.
func sweepLeftovers(parent string) {
	dirs, err := filepath.Glob(filepath.Join(parent, directoryPattern+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, lockName)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		lock, err := takeLock(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = releaseLock(lock)
	}
}
