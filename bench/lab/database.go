package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Database is the database of one contender.
type Database struct {
	URL string

	lab  *Lab
	name string
	conn *pgx.Conn // for statements that are not measured
}

// Lab returns the server.
func (d *Database) Lab() *Lab { return d.lab }

// Close drops the database.
func (d *Database) Close(ctx context.Context) error {
	if err := d.conn.Close(ctx); err != nil {
		return err
	}
	_, err := d.lab.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+quoted(d.name)+" WITH (FORCE)")
	return err
}

// Pool opens a pool of this many connections; 0 is pgxpool's default. configure may change more of
// its configuration.
func (d *Database) Pool(ctx context.Context, conns int, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return nil, err
	}
	if conns > 0 {
		config.MaxConns = int32(conns) //nolint:gosec // a handful
	}
	for _, change := range configure {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open a pool: %w", err)
	}
	return pool, nil
}

// Exec runs statements that are not measured.
func (d *Database) Exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := d.conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%.60s: %w", s, err)
		}
	}
	return nil
}

// Used returns the CPU time of the backend that serves what is not measured; 0 if it cannot be seen
// from here.
func (d *Database) Used() time.Duration {
	if d.lab.postmaster == 0 {
		return 0
	}
	s, err := readStat(fmt.Sprintf("/proc/%d/stat", d.conn.PgConn().PID()))
	if err != nil {
		return 0
	}
	return s.used()
}

// Int reads one number.
func (d *Database) Int(ctx context.Context, query string, args ...any) (int64, error) {
	var n int64
	if err := d.conn.QueryRow(ctx, query, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("%.60s: %w", query, err)
	}
	return n, nil
}

// Row reads one row.
func (d *Database) Row(ctx context.Context, query string, into ...any) error {
	return d.conn.QueryRow(ctx, query).Scan(into...)
}

// Quiet waits until all other connections have ended: a backend reports its statistics when it
// ends.
func (d *Database) Quiet(ctx context.Context) error {
	for range 300 {
		others, err := d.Int(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`)
		if err != nil || others == 0 {
			return err
		}
		if err := Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Updates returns the updates of all tables so far, and how many of them were heap-only.
func (d *Database) Updates(ctx context.Context) (all, heapOnly int64, err error) {
	err = d.Row(ctx, "SELECT coalesce(sum(n_tup_upd), 0)::bigint, coalesce(sum(n_tup_hot_upd), 0)::bigint FROM pg_stat_user_tables", &all, &heapOnly)
	return all, heapOnly, err
}

// Buffers returns how many buffers of tables and their indexes have been touched so far.
func (d *Database) Buffers(ctx context.Context) (int64, error) {
	return d.Int(ctx, `SELECT coalesce(sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)), 0)::bigint
		FROM pg_statio_user_tables`)
}

// Sleep waits unless ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
