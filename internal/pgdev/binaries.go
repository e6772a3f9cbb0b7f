package pgdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// errNoPostgres says that the machine has no Postgres server.
var errNoPostgres = errors.New("no Postgres server found in PATH or /usr/lib/postgresql")

// debianBinaries is where Debian keeps the binaries of each major version, outside of PATH.
const debianBinaries = "/usr/lib/postgresql/*/bin"

// findBinaries returns the directory that holds initdb and postgres: the one in PATH, else Debian's newest.
func findBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// A link in PATH leads to the directory that also holds postgres and its libraries.
		if path, err = filepath.EvalSymlinks(path); err == nil && holdsServer(filepath.Dir(path)) {
			return filepath.Dir(path), nil
		}
	}
	return newestBinaries(debianBinaries)
}

// newestBinaries returns the directory of the highest version among those that match the pattern …/<version>/bin.
func newestBinaries(pattern string) (string, error) {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return "", fmt.Errorf("look for Postgres: %w", err)
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !holdsServer(dir) })
	if len(dirs) == 0 {
		return "", errNoPostgres
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return version(a) - version(b) }), nil
}

func version(dir string) int {
	major, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
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

// installBinaries installs the distribution's server package where that needs nobody's consent: as root on Debian.
// Anywhere else the error says what to run.
func installBinaries(ctx context.Context, progress io.Writer) (string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("%w; install it, e.g. with: brew install postgresql", errNoPostgres)
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("%w; install it with: sudo apt-get install postgresql", errNoPostgres)
	}
	if err := apt(ctx, progress, "update"); err != nil {
		return "", err
	}
	server, err := newestServerPackage(ctx)
	if err != nil {
		return "", err
	}
	// The package would create and start a cluster of its own. Its defaults come with postgresql-common and are read by
	// the server's installation, so the override goes between the two.
	if err := apt(ctx, progress, "install", "--yes", "--no-install-recommends", "postgresql-common"); err != nil {
		return "", err
	}
	if err := forbidMainCluster("/etc/postgresql-common/createcluster.d"); err != nil {
		return "", err
	}
	if err := apt(ctx, progress, "install", "--yes", "--no-install-recommends", server); err != nil {
		return "", err
	}
	return newestBinaries(debianBinaries)
}

// newestServerPackage returns the package of the highest major version that the machine's sources offer.
func newestServerPackage(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "pkgnames", "postgresql-").Output()
	if err != nil {
		return "", fmt.Errorf("list the Postgres packages: %w", err)
	}
	newest := 0
	for name := range strings.Lines(string(out)) {
		if major, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(name, "postgresql-"))); err == nil {
			newest = max(newest, major)
		}
	}
	if newest == 0 {
		return "", fmt.Errorf("%w, and apt offers none", errNoPostgres)
	}
	return "postgresql-" + strconv.Itoa(newest), nil
}
