//go:build unix

package pgdev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Standby starts a hot standby that streams from the cluster, with the cluster's settings, password
// and binaries. The server is down while its directory is copied: a copy needs no program except
// postgres, and some packages have no other. Replication is asynchronous unless
// synchronous_standby_names is set. [Cluster.Promote] makes the standby a primary, [Cluster.Stop]
// removes it.
func (c *Cluster) Standby(ctx context.Context) (*Cluster, error) {
	s := &Cluster{binaries: c.binaries, account: c.account, password: c.password, peers: c.peers, settings: c.settings}
	var err error
	if s.dir, s.lock, err = newDirectory(os.TempDir(), s.account); err != nil {
		return nil, err
	}
	err = errors.Join(s.introduce(), c.copyTo(ctx, s))
	// The primary starts again in any case, since it is the caller's.
	if err = errors.Join(err, c.Restart(ctx)); err == nil {
		err = s.Restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// copyTo shuts the server down and makes s a standby with its data.
func (c *Cluster) copyTo(ctx context.Context, s *Cluster) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lock == nil {
		return errors.New("copy the cluster: it was stopped for good")
	}
	if err := c.shutdown(shutdownFast); err != nil {
		return err
	}
	if out, err := c.account.command(ctx, "cp", "-Rp", c.data(), s.data()).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the cluster: %w\n%s", err, out)
	}
	signal := filepath.Join(s.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return fmt.Errorf("make the copy a standby: %w", err)
	}
	if err := s.account.own(signal); err != nil {
		return err
	}
	// The password goes into a file, since everybody on the machine can read arguments.
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s", c.port, superuser, c.password)
	settings, err := os.OpenFile(filepath.Join(s.data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("set the primary of the standby: %w", err)
	}
	_, err = fmt.Fprintf(settings, "primary_conninfo = '%s'\n", conninfo)
	if err = errors.Join(err, settings.Close()); err != nil {
		return fmt.Errorf("set the primary of the standby: %w", err)
	}
	return nil
}

// Promote ends a standby's recovery, and returns when the server takes writes.
func (c *Cluster) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.URL(""))
	if err != nil {
		return fmt.Errorf("connect to the standby: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var promoted bool
	row := conn.QueryRow(ctx, "SELECT pg_promote(true, $1)", int(startTimeout.Seconds()))
	if err := row.Scan(&promoted); err != nil {
		return fmt.Errorf("promote the standby: %w", err)
	}
	if !promoted {
		return fmt.Errorf("promote the standby: it was not done within %s", startTimeout)
	}
	return nil
}

// WritableURL returns the superuser's URL of a database on the primary, which may be c or any of
// its standbys.
func (c *Cluster) WritableURL(database string, standbys ...*Cluster) (string, error) {
	u, err := url.Parse(c.URL(database))
	if err != nil {
		return "", fmt.Errorf("read the cluster's URL: %w", err)
	}
	for _, s := range standbys {
		s.mu.Lock()
		u.Host += "," + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
		s.mu.Unlock()
	}
	u.RawQuery += "&target_session_attrs=read-write"
	return u.String(), nil
}
