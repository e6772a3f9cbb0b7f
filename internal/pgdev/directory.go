//go:build unix

package pgdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	directoryPattern = "gendurable-pg-"
	lockName         = "lock"
)

// newDirectory makes the directory of a cluster and locks it. The lock belongs to the open file,
// which the server inherits: it is held while the owner or the server lives, even if process ids
// are used again meanwhile.
func newDirectory(parent string, runAs *account) (string, *os.File, error) {
	dir, err := os.MkdirTemp(parent, directoryPattern)
	if err != nil {
		return "", nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	// The file is locked first and named afterwards: a sweep meets either no lock file or a locked
	// one.
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

// openDirectory locks a directory that outlives its cluster, and makes it if necessary.
func openDirectory(dir string, runAs *account) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("make the parent of the cluster's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	lock, err := takeLock(filepath.Join(dir, lockName))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, &InUseError{Directory: dir, URL: published(dir)}
	}
	if err != nil {
		return nil, fmt.Errorf("lock the cluster's directory: %w", err)
	}
	// A URL that a killed owner has left leads to another server than this start's.
	if err := errors.Join(runAs.own(dir), withdraw(dir)); err != nil {
		return nil, errors.Join(err, releaseLock(lock))
	}
	return lock, nil
}

// These files of a kept directory say where its server is: the URL while it runs, the port for
// ever.
const (
	urlName  = "url"
	portName = "port"
)

// publish writes where the server of a kept directory is. The URL has the password, so only the
// owner may read it.
func publish(dir, url string, port int) error {
	err := os.WriteFile(filepath.Join(dir, portName), []byte(strconv.Itoa(port)), 0o600)
	if err == nil {
		// The file is renamed when complete: a reader never sees half of it.
		incomplete := filepath.Join(dir, urlName+".incomplete")
		if err = os.WriteFile(incomplete, []byte(url), 0o600); err == nil {
			err = os.Rename(incomplete, filepath.Join(dir, urlName))
		}
	}
	if err != nil {
		return fmt.Errorf("write the URL of the server: %w", err)
	}
	return nil
}

// published returns the URL of the server that runs on a kept directory; "" if the server does not
// accept connections yet, or no longer.
func published(dir string) string {
	url, err := os.ReadFile(filepath.Join(dir, urlName))
	if err != nil {
		return ""
	}
	return string(url)
}

// withdraw removes the URL.
func withdraw(dir string) error {
	if err := os.Remove(filepath.Join(dir, urlName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the URL of the server: %w", err)
	}
	return nil
}

// lastPort returns the port of the last server on a kept directory; 0 if there was none.
func lastPort(dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, portName))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return port
}

// keptMajor returns the major version of Postgres that wrote a kept directory's data; "" if there
// are none.
func keptMajor(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "data", "PG_VERSION"))
	if dir == "" || err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
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

// releaseLock releases the lock at once. A close alone would not suffice: a program that the owner
// starts at that moment has every open file until it executes, and would hold the lock that long.
func releaseLock(lock *os.File) error {
	return errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN), lock.Close())
}

// sweepLeftovers removes the directories of clusters whose owner and server are gone. If a
// directory has no lock file, another process is making it; if it cannot be locked or removed, it
// belongs to another process.
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
