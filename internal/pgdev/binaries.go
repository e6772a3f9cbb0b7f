package pgdev

import (
	"context"
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

// InUseError is returned by Start for a directory whose server runs.
type InUseError struct {
	Directory string
	URL       string // the superuser's; "": the server does not accept connections yet, or no longer
}

// Error names the directory.
func (e *InUseError) Error() string { return "the cluster in " + e.Directory + " is in use" }

// ErrNotInstalled is returned by Start and StartBouncer on a machine that lacks the program, with
// the command that installs it.
var ErrNotInstalled = errors.New("not installed")

// programs are the places outside of PATH where systems keep the binaries of each major version.
var programs = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian
	"/usr/pgsql-*/bin",                                   // Red Hat
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
}

// findBinaries returns the directory that holds initdb and postgres: the one in PATH, else the
// newest one that a system keeps elsewhere, else the one that [Fetch] has put into its [Home]. If
// major is not "", the directory has that major version.
func findBinaries(major string) (string, error) {
	var found []string
	if path, err := exec.LookPath("initdb"); err == nil {
		// A link in PATH leads to the directory that also holds postgres and its libraries.
		if path, err = filepath.EvalSymlinks(path); err == nil && holdsServer(filepath.Dir(path)) {
			found = append(found, filepath.Dir(path))
		}
	}
	kept, err := allBinaries(programs...)
	if err != nil {
		return "", err
	}
	found = append(found, kept...)
	if home, err := Home(fetchedName("*")); err == nil {
		fetched, err := allBinaries(filepath.Join(home, "bin"))
		if err != nil {
			return "", err
		}
		found = append(found, fetched...)
	}
	if major == "" && len(found) > 0 {
		return found[0], nil
	}
	for _, dir := range found {
		if majorOf(dir) == major {
			return dir, nil
		}
	}
	if len(found) > 0 {
		return "", missing("Postgres "+major, "postgresql-"+major, "the data are of that version, and here is Postgres "+majorOf(found[0]))
	}
	return "", missing("Postgres", "postgresql", "initdb and postgres are neither in PATH nor where systems keep them")
}

// fetchedName returns the name in [Home] of a fetched major version.
func fetchedName(major string) string { return "postgres-" + major }

// FetchHome fetches the newest known major version, for servers that start later.
func FetchHome(ctx context.Context) error {
	major := strconv.Itoa(NewestMajor)
	dir, err := Home(fetchedName(major))
	if err != nil {
		return err
	}
	return Fetch(ctx, NewestMajor, dir)
}

// allBinaries returns the directories with a server that match a pattern …<version>/bin, the newest
// version first.
func allBinaries(patterns ...string) ([]string, error) {
	var found []string
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("look for Postgres: %w", err)
		}
		found = append(found, dirs...)
	}
	found = slices.DeleteFunc(found, func(dir string) bool { return !holdsServer(dir) })
	slices.SortStableFunc(found, func(a, b string) int { return version(b) - version(a) })
	return found, nil
}

var printedVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// majorOf returns the major version that a directory's server reports; "" if it does not run.
func majorOf(dir string) string {
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output() //nolint:noctx // it prints a line
	if m := printedVersion.FindSubmatch(out); err == nil && m != nil {
		return string(m[1])
	}
	return ""
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

// missing returns the error that a program's package has to be installed, with the command that
// installs it on this machine.
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

// Home returns where a user's data and binaries of a name are kept: gendurable/<name> in the
// directory that XDG_DATA_HOME names, or in the system's directory for data. For root it is in
// /var/lib, since the account that Postgres runs as then cannot enter root's home.
func Home(name string) (string, error) {
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "gendurable", name), nil
	}
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib/gendurable", name), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a place to keep data: %w", err)
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(home, "Library", "Application Support", "gendurable", name), nil
	}
	return filepath.Join(home, ".local", "share", "gendurable", name), nil
}

// Advice completes an [ErrNotInstalled]: it says that there are binaries to fetch for this machine.
// It returns "" for other errors, and if there are no such binaries.
func Advice(err error) string {
	if !errors.Is(err, ErrNotInstalled) || archives[NewestMajor].sums[platform()] == "" {
		return ""
	}
	return ", or fetch it with: go run github.com/gendurable/gendurable/cmd/gendurable@latest dev --fetch"
}

func onPath(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}
