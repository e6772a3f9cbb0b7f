// Package lab takes measurements: it has a Postgres, a database for each contender, and meters for
// the cost of a run.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/pgdev"
)

// settings are the settings of the throwaway cluster, in addition to initdb's defaults. It is as
// durable as production, and has room for the write-ahead log, so that no checkpoint falls into one
// contender's run and not into the other's.
var settings = [][2]string{
	{"fsync", "on"},
	{"synchronous_commit", "on"},
	{"full_page_writes", "on"},
	{"max_connections", "300"},
	{"shared_buffers", "1GB"},
	{"max_wal_size", "8GB"},
	{"checkpoint_timeout", "30min"},
}

// shown are the settings that readers of the figures need.
var shown = []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sync_method", "shared_buffers",
	"max_wal_size", "checkpoint_timeout", "autovacuum", "autovacuum_naptime", "jit"}

// Lab is one Postgres server.
type Lab struct {
	cluster    *pgdev.Cluster // nil: the server is not ours
	address    string         // of the superuser's own database
	admin      *pgx.Conn
	postmaster int // 0: its processes cannot be seen from here
}

// Open starts a throwaway cluster. With an address it uses the server there, whose role must have
// the right to create databases. [Lab.Account] needs account to be true, so that the cluster
// records its statements.
func Open(ctx context.Context, address string, account bool) (*Lab, error) {
	if address != "" {
		return (&Lab{address: address}).connect(ctx)
	}
	wanted := settings
	if account {
		wanted = slices.Concat(settings, withStatements)
	}
	cluster, err := pgdev.Start(ctx, options(wanted)...)
	if err != nil {
		return nil, err
	}
	return over(ctx, cluster)
}

// OpenPlain starts a throwaway cluster from the Postgres in a bin directory.
func OpenPlain(ctx context.Context, binaries string) (*Lab, error) {
	cluster, err := pgdev.Start(ctx, append(options(settings), pgdev.WithBinaries(binaries))...)
	if err != nil {
		return nil, err
	}
	return over(ctx, cluster)
}

func options(settings [][2]string) (all []pgdev.Option) {
	for _, s := range settings {
		all = append(all, pgdev.WithSetting(s[0], s[1]))
	}
	return all
}

// over returns the lab of a cluster, which it then owns.
func over(ctx context.Context, cluster *pgdev.Cluster) (*Lab, error) {
	return (&Lab{cluster: cluster, address: cluster.URL("")}).connect(ctx)
}

func (l *Lab) connect(ctx context.Context) (*Lab, error) {
	var err error
	if l.admin, err = pgx.Connect(ctx, l.address); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the server: %w", err), l.Close(ctx))
	}
	if l.cluster != nil {
		var backend int
		if err := l.admin.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
			return nil, errors.Join(err, l.Close(ctx))
		}
		l.postmaster = parentOf(backend)
	}
	return l, nil
}

// Close stops the cluster if it is ours. It does not close the databases.
func (l *Lab) Close(ctx context.Context) error {
	var err error
	if l.admin != nil {
		err = l.admin.Close(ctx)
	}
	if l.cluster != nil {
		err = errors.Join(err, l.cluster.Stop())
	}
	return err
}

// Setting is a setting of the server, for the head of a report.
type Setting struct{ Name, Value string }

// Settings returns the settings that the figures depend on.
func (l *Lab) Settings(ctx context.Context) ([]Setting, error) {
	rows, err := l.admin.Query(ctx, "SELECT n, current_setting(n) FROM unnest($1::text[]) WITH ORDINALITY AS t(n, i) ORDER BY i", shown)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Setting])
}

// Checkpoint makes a checkpoint, so that each contender's round starts from the same state: after
// it, the first change of each page is logged in full.
func (l *Lab) Checkpoint(ctx context.Context) error {
	_, err := l.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// Database makes a fresh database, and drops an old one of that name.
func (l *Lab) Database(ctx context.Context, contender string) (*Database, error) {
	name := "gendurable_bench_" + strings.ToLower(contender)
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + quoted(name) + " WITH (FORCE)",
		"CREATE DATABASE " + quoted(name),
	} {
		if _, err := l.admin.Exec(ctx, statement); err != nil {
			return nil, fmt.Errorf("make database %s: %w", name, err)
		}
	}
	return l.attach(ctx, name)
}

// attach connects to a database that is there.
func (l *Lab) attach(ctx context.Context, name string) (*Database, error) {
	u, err := url.Parse(l.address)
	if err != nil {
		return nil, fmt.Errorf("the server's address: %w", err)
	}
	u.Path = "/" + name
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return nil, err
	}
	return &Database{lab: l, name: name, URL: u.String(), conn: conn}, nil
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
