//go:build unix

package pgdev

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// bouncerAttempts bounds how many ports are tried.
const bouncerAttempts = 10

// Bouncer is a throwaway PgBouncer in front of a server. It asks for the same password, and ends
// like a [Cluster].
type Bouncer struct {
	program string
	account *account
	dir     string
	lock    *os.File // nil after Stop
	port    int
	server  *server
}

// StartBouncer puts a PgBouncer in front of the server whose superuser's URL is given, for all of
// its databases, and waits until it passes connections on. Of the options only WithSetting
// applies; settings belong to its section [pgbouncer], such as pool_mode, which is "transaction"
// by default. ctx bounds the start only. Without PgBouncer on the machine the error is
// [ErrNotInstalled], and names the command that installs it.
func StartBouncer(ctx context.Context, upstream string, options ...Option) (*Bouncer, error) {
	cfg := newConfig(options)
	program, err := findBouncer()
	if err != nil {
		return nil, err
	}
	runAs, err := serverAccount()
	if err != nil {
		return nil, err
	}
	behind, err := pgx.ParseConfig(upstream)
	if err != nil {
		return nil, fmt.Errorf("read the server's URL: %w", err)
	}
	sweepLeftovers(os.TempDir())
	b := &Bouncer{program: program, account: runAs}
	if b.dir, b.lock, err = newDirectory(os.TempDir(), runAs); err != nil {
		return nil, err
	}
	for range bouncerAttempts {
		if err = b.start(ctx, behind, cfg.settings); err == nil {
			return b, nil
		}
		var early *earlyExitError
		if !errors.As(err, &early) || !early.contains("Address already in use") {
			break
		}
	}
	return nil, errors.Join(err, b.Stop())
}

// start writes the configuration for a free port and launches the program with it.
func (b *Bouncer) start(ctx context.Context, behind *pgx.ConnConfig, settings [][2]string) error {
	var err error
	if b.port, err = freePort(ctx); err != nil {
		return err
	}
	users := filepath.Join(b.dir, "users")
	lines := []string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d", behind.Host, behind.Port),
		"[pgbouncer]",
	}
	for _, setting := range slices.Concat([][2]string{
		{"listen_addr", "127.0.0.1"}, {"listen_port", strconv.Itoa(b.port)}, {"unix_socket_dir", ""},
		{"auth_type", "md5"}, {"auth_file", users}, {"pool_mode", "transaction"}, {"max_client_conn", "1000"},
	}, settings) {
		lines = append(lines, setting[0]+" = "+setting[1])
	}
	for path, content := range map[string]string{
		users:      fmt.Sprintf("%q %q\n", behind.User, behind.Password),
		b.config(): strings.Join(lines, "\n") + "\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("configure PgBouncer: %w", err)
		}
		if err := b.account.own(path); err != nil {
			return err
		}
	}
	cmd := b.account.command(context.Background(), b.program, b.config())
	cmd.Dir = b.dir
	cmd.ExtraFiles = []*os.File{b.lock}
	started, err := launch(cmd, filepath.Join(b.dir, "log"))
	if err != nil {
		return fmt.Errorf("start PgBouncer: %w", err)
	}
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	through := b.URL(behind.ConnString())
	err = started.waitReady(ready, func(ctx context.Context) error { return ping(ctx, through) })
	if err != nil {
		return errors.Join(err, started.stop(shutdownImmediate))
	}
	b.server = started
	return nil
}

func (b *Bouncer) config() string { return filepath.Join(b.dir, "pgbouncer.ini") }

// URL turns a URL of the server into one that leads through the bouncer. The database and the role
// may be any that the bouncer knows.
func (b *Bouncer) URL(direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		return direct // pgx refuses it, too, and says why
	}
	u.Host = "127.0.0.1:" + strconv.Itoa(b.port)
	return u.String()
}

// Stop ends the bouncer and all of its connections, and removes its directory. On a stopped one it
// does nothing.
func (b *Bouncer) Stop() error {
	if b.lock == nil {
		return nil
	}
	var err error
	if b.server != nil {
		err = b.server.stop(shutdownImmediate)
	}
	err = errors.Join(err, os.RemoveAll(b.dir), releaseLock(b.lock))
	b.lock = nil
	if err != nil {
		return fmt.Errorf("stop PgBouncer: %w", err)
	}
	return nil
}
