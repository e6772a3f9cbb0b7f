//go:build unix

package pgdev

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	superuser = "postgres"
	// startTimeout bounds one start, crash recovery included.
	startTimeout = 60 * time.Second
	// stopTimeout bounds a shutdown before the server is killed.
	stopTimeout = 15 * time.Second
)

// Option changes how [Start] sets up a cluster.
type Option func(*config)

type config struct {
	settings  [][2]string
	directory string
	port      int
	binaries  string
	password  string // that the servers of a Citus cluster share
	volatile  bool   // nothing survives a crash of the machine
}

func newConfig(options []Option) config {
	var cfg config
	for _, option := range options {
		option(&cfg)
	}
	return cfg
}

// WithSetting sets a server parameter, e.g. WithSetting("max_connections", "300"). The last value
// of a name wins.
func WithSetting(name, value string) Option {
	return func(c *config) { c.settings = append(c.settings, [2]string{name, value}) }
}

// WithoutFsync trades crash safety for speed: fsync, synchronous_commit and full_page_writes are
// off, and passwords are checked by MD5. It is for tests that never crash the server and measure
// nothing. Without a directory, the cluster is in memory if there is much of it: see [Start].
func WithoutFsync() Option {
	return func(c *config) {
		c.volatile = true
		for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			WithSetting(name, "off")(c)
		}
	}
}

// WithDirectory keeps the cluster in the directory, which it makes if necessary. Stop leaves it
// there, and the next Start with the same directory finds the data again, with the binaries of the
// same major version, at the same URL unless another program has its port. As root, the account
// that the server runs as must be able to enter the path. Start returns an [InUseError] for a
// directory whose server runs.
func WithDirectory(path string) Option {
	return func(c *config) { c.directory = path }
}

// WithPort sets the port that the server listens at; without it, the server uses a free one.
func WithPort(port int) Option {
	return func(c *config) { c.port = port }
}

// WithBinaries takes initdb and postgres from the directory, instead of those that the machine
// finds first.
func WithBinaries(path string) Option {
	return func(c *config) { c.binaries = path }
}

// Cluster is one throwaway server. Its methods are safe for concurrent use; all but URL and Stop
// act on the server process only and keep the data.
type Cluster struct {
	binaries string
	account  *account
	password string
	peers    bool // the server connects to others with the same password
	volatile bool // see WithoutFsync
	settings [][2]string

	// dir is the directory of the cluster, lock its locked file, shared with the server process.
	dir  string
	kept bool     // Stop leaves dir
	lock *os.File // nil after Stop

	mu        sync.Mutex
	port      int
	portFixed bool    // by WithPort
	portKnown bool    // the server was up once, so others know its URL and the port must stay
	server    *server // nil while the server is down
}

// Start creates a cluster and waits until it accepts connections. ctx bounds the start only.
// Without Postgres on the machine the error is [ErrNotInstalled], and names the command that
// installs it. fsync is on unless [WithoutFsync] is given. A cluster without fsync is in memory,
// where the machine has 8 GiB to spare and a file system for it, unless TMPDIR is set.
func Start(ctx context.Context, options ...Option) (*Cluster, error) {
	cfg := newConfig(options)
	runAs, err := serverAccount()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		account: runAs, settings: cfg.settings, kept: cfg.directory != "", port: cfg.port, portFixed: cfg.port != 0,
		password: cfg.password, peers: cfg.password != "", volatile: cfg.volatile,
	}
	if c.binaries, err = cfg.findBinaries(); err != nil {
		return nil, err
	}
	if c.kept {
		c.dir = cfg.directory
		c.lock, err = openDirectory(c.dir, runAs)
	} else {
		parent := cfg.parent()
		sweepLeftovers(parent)
		c.dir, c.lock, err = newDirectory(parent, runAs)
	}
	if err != nil {
		return nil, err
	}
	if c.kept && c.port == 0 {
		c.port = lastPort(c.dir)
	}
	if err := c.initialize(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.Restart(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if c.kept {
		if err := publish(c.dir, c.URL(""), c.port); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return c, nil
}

// parent returns where the directory of a throwaway cluster is made.
func (c *config) parent() string {
	if c.volatile && os.Getenv("TMPDIR") == "" {
		return cmp.Or(memory(), os.TempDir())
	}
	return os.TempDir()
}

// findBinaries returns the directory of WithBinaries, or else the one that the machine has.
func (c *config) findBinaries() (string, error) {
	if c.binaries == "" {
		return findBinaries(keptMajor(c.directory))
	}
	if !holdsServer(c.binaries) {
		return "", fmt.Errorf("no Postgres: %s does not hold initdb and postgres", c.binaries)
	}
	return c.binaries, nil
}

// initialize sets up the data directory, unless it exists.
func (c *Cluster) initialize(ctx context.Context) error {
	passwordFile := filepath.Join(c.dir, "password")
	if _, err := os.Stat(c.data()); err == nil {
		password, err := os.ReadFile(passwordFile)
		if err != nil {
			return fmt.Errorf("read the superuser's password: %w", err)
		}
		c.password = string(password)
		return nil
	}
	c.password = cmp.Or(c.password, rand.Text())
	// A test connects many times, and under the race detector SCRAM takes its client 16 ms each time.
	auth := "scram-sha-256"
	if c.volatile {
		auth = "md5"
	}
	if copied, err := c.pristine(ctx, c.data(), auth); copied || err != nil {
		return err
	}
	if err := os.WriteFile(passwordFile, []byte(c.password), 0o600); err != nil {
		return fmt.Errorf("write the superuser's password: %w", err)
	}
	if err := c.account.own(passwordFile); err != nil {
		return err
	}
	if err := c.introduce(); err != nil {
		return err
	}
	// It is renamed when complete, so that an interrupted initdb leaves no directory that looks like a
	// cluster.
	incomplete := c.data() + ".incomplete"
	if err := os.RemoveAll(incomplete); err != nil {
		return fmt.Errorf("remove an interrupted cluster: %w", err)
	}
	if err := c.initdb(ctx, incomplete, passwordFile, auth); err != nil {
		return err
	}
	if err := os.Rename(incomplete, c.data()); err != nil {
		return fmt.Errorf("put the new cluster in place: %w", err)
	}
	return nil
}

// initdb makes a data directory, as the account that the server will run as.
func (c *Cluster) initdb(ctx context.Context, dir, passwordFile, auth string) error {
	cmd := c.account.command(ctx, filepath.Join(c.binaries, "initdb"),
		"--pgdata="+dir, "--username="+superuser, "--pwfile="+passwordFile, "--auth="+auth,
		"--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.Dir = c.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		if c.account != nil && errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("root's Postgres runs as another user, who cannot enter %s: %w", c.dir, err)
		}
		return fmt.Errorf("run initdb: %w\n%s", err, out)
	}
	return nil
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// URL returns the superuser's connection URL of a database; an empty name means "postgres". It
// stays the same over restarts.
func (c *Cluster) URL(database string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.url(database)
}

func (c *Cluster) url(database string) string {
	if database == "" {
		database = superuser
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, c.password),
		Host:     "127.0.0.1:" + strconv.Itoa(c.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Restart shuts the server down, if it runs, and starts it again on the same data and port. After
// StopImmediate or Kill, it first waits for crash recovery. It returns when the server accepts
// connections, or when ctx ends.
func (c *Cluster) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock == nil {
		return errors.New("restart the cluster: it was stopped for good")
	}
	if err := c.shutdown(shutdownFast); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := c.start(ctx)
		var early *earlyExitError
		if err == nil || !errors.As(err, &early) || !early.passing() {
			return err
		}
		if early.portTaken() && c.portFixed && !c.portKnown {
			return fmt.Errorf("port %d is taken", c.port)
		}
		// Another program took the port between the check and the bind, or a killed server's children
		// still hold its shared memory.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// start launches the server and waits for its first connection.
func (c *Cluster) start(ctx context.Context) error {
	if c.port == 0 {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		c.port = port
	}
	started, err := c.launch()
	if err != nil {
		return err
	}
	if err := started.waitReady(ctx, c.ping); err != nil {
		var early *earlyExitError
		if errors.As(err, &early) && early.portTaken() && !c.portKnown && !c.portFixed {
			c.port = 0
		}
		return errors.Join(err, started.stop(shutdownImmediate))
	}
	c.server, c.portKnown = started, true
	return nil
}

func (c *Cluster) ping(ctx context.Context) error { return ping(ctx, c.url("")) }

func ping(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to the new server: %w", err)
	}
	return conn.Close(ctx)
}

// Wait returns nil when ctx ends. It returns an error with the end of the log when the server ends
// without a stop.
func (c *Cluster) Wait(ctx context.Context) error {
	c.mu.Lock()
	running := c.server
	c.mu.Unlock()
	if running == nil {
		return errors.New("the server is down")
	}
	select {
	case <-ctx.Done():
		return nil
	case <-running.exited:
		return fmt.Errorf("the server has ended:\n%s", running.log())
	}
}

// Stop shuts the server down for good and removes everything except a directory of WithDirectory.
// On a stopped cluster it does nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock == nil {
		return nil
	}
	err := c.shutdown(shutdownFast)
	if c.kept {
		err = errors.Join(err, withdraw(c.dir))
	} else {
		// The lock is released after the directory is gone, so that no sweep of another process meets a
		// half-removed one.
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	err = errors.Join(err, releaseLock(c.lock))
	c.lock = nil
	if err != nil {
		return fmt.Errorf("stop the cluster: %w", err)
	}
	return nil
}

// StopImmediate stops the server as a crash would: no checkpoint, open transactions are lost,
// committed ones are kept. Restart starts it again.
func (c *Cluster) StopImmediate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shutdown(shutdownImmediate)
}

// Kill kills the server's first process with SIGKILL; its children notice that and end. Restart
// starts it again.
func (c *Cluster) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shutdown(os.Kill)
}

func (c *Cluster) shutdown(how os.Signal) error {
	if c.server == nil {
		return nil
	}
	err := c.server.stop(how)
	c.server = nil
	return err
}
