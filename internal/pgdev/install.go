//go:build unix

package pgdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// findBouncer returns the program's path. Debian keeps it in a directory that the PATH of an
// ordinary user does not have.
func findBouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", missing("PgBouncer", "pgbouncer", "it is neither in PATH nor in /usr/sbin")
}

// Install installs the parts of Postgres and PgBouncer that this machine lacks, by apt-get as root,
// without clusters or services of the system's. It writes each command to progress. No other
// function of this package installs anything.
func Install(ctx context.Context, progress io.Writer) error {
	_, noServer := findBinaries("")
	_, noBouncer := findBouncer()
	if noServer == nil && noBouncer == nil {
		return nil
	}
	if !onPath("apt-get") || os.Geteuid() != 0 {
		return errors.Join(noServer, noBouncer)
	}
	if err := apt(ctx, progress, "update"); err != nil {
		return err
	}
	if noServer != nil {
		if err := installServer(ctx, progress); err != nil {
			return err
		}
	}
	if noBouncer != nil {
		return installBouncer(ctx, progress)
	}
	return nil
}

// installServer installs the newest server that the machine's sources offer.
func installServer(ctx context.Context, progress io.Writer) error {
	server, err := newestServerPackage(ctx)
	if err != nil {
		return err
	}
	// The package would create and start another cluster. Its defaults come with postgresql-common,
	// and the server's installation reads them, so the override goes between the two.
	if err := apt(ctx, progress, "install", "--yes", "--no-install-recommends", "postgresql-common"); err != nil {
		return err
	}
	if err := forbidMainCluster("/etc/postgresql-common/createcluster.d"); err != nil {
		return err
	}
	return apt(ctx, progress, "install", "--yes", "--no-install-recommends", server)
}

// newestServerPackage returns the package of the highest major version that the machine's sources
// offer.
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
		return "", errors.New("apt offers no Postgres server")
	}
	return "postgresql-" + strconv.Itoa(newest), nil
}

func installBouncer(ctx context.Context, progress io.Writer) error {
	allow, err := forbidServices("/usr/sbin/policy-rc.d")
	if err != nil {
		return err
	}
	return errors.Join(apt(ctx, progress, "install", "--yes", "--no-install-recommends", "pgbouncer"), allow())
}

// forbidServices keeps packages from starting their services, by the script that Debian runs before
// it starts one. It leaves a script that exists alone, since that is the administrator's. The
// function that it returns lifts the ban.
func forbidServices(policy string) (allow func() error, err error) {
	file, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("forbid a system service: %w", err)
	}
	_, err = file.WriteString("#!/bin/sh\nexit 101\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("forbid a system service: %w", err), os.Remove(policy))
	}
	return func() error { return os.Remove(policy) }, nil
}

// aptPatience is how long apt waits for another process that uses apt.
const aptPatience = 5 * time.Minute

// apt runs apt-get without questions. Several processes may run it at the same time; they wait for
// each other. apt itself does not wait for dpkg's lock on the lists of packages, so apt-get is
// repeated here.
func apt(ctx context.Context, progress io.Writer, arguments ...string) error {
	fmt.Fprintf(progress, "apt-get %s\n", strings.Join(arguments, " "))
	ctx, cancel := context.WithTimeout(ctx, aptPatience)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "-o", "DPkg::Lock::Timeout=300"}, arguments...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("apt-get %s: %w\n%s", strings.Join(arguments, " "), err, out)
		if !bytes.Contains(out, []byte("Could not get lock")) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// forbidMainCluster keeps the package of Postgres from creating and starting a cluster.
func forbidMainCluster(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("forbid a system cluster: %w", err)
	}
	override := filepath.Join(dir, "gendurable.conf")
	if err := os.WriteFile(override, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return fmt.Errorf("forbid a system cluster: %w", err)
	}
	return nil
}
