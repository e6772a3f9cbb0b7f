// Package lab is where measurements are taken: a Postgres, a database for each contender, and meters of what a run cost.
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

// settings of the throwaway cluster, beside initdb's defaults: as durable as production, and with room for the write-ahead log, so that no
// checkpoint falls into one contender's run and not into the other's.
var settings = [][2]string{
	{"fsync", "on"},
	{"synchronous_commit", "on"},
	{"full_page_writes", "on"},
	{"max_connections", "300"},
	{"shared_buffers", "1GB"},
	{"max_wal_size", "8GB"},
	{"checkpoint_timeout", "30min"},
}

// shown are the settings that a reader of figures asks for.
var shown = []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sync_method", "shared_buffers",
	"max_wal_size", "checkpoint_timeout", "autovacuum", "autovacuum_naptime", "jit"}

// Lab is one Postgres server.
type Lab struct {
	cluster    *pgdev.Cluster // nil: somebody else's server
	address    string         // of the superuser's own database
	admin      *pgx.Conn
	postmaster int // 0: its processes cannot be seen from here
}

// Open starts a throwaway cluster, or with an address uses the server there, whose role has to be allowed to create databases. For [Lab.Account]
// the cluster has to keep an account of its statements.
func Open(ctx context.Context, address string, account bool) (*Lab, error) {
	l := &Lab{address: address}
	if address == "" {
		var options []pgdev.Option
		wanted := settings
		if account {
			wanted = slices.Concat(settings, withStatements)
		}
		for _, s := range wanted {
			options = append(options, pgdev.WithSetting(s[0], s[1]))
		}
		cluster, err := pgdev.Start(ctx, options...)
		if err != nil {
			return nil, err
		}
		l.cluster, l.address = cluster, cluster.URL("")
	}
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

// Close stops the cluster if it is ours. The databases are their owners' to close.
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

// Setting of the server, for the head of a report.
type Setting struct{ Name, Value string }

// Settings that the figures depend on.
func (l *Lab) Settings(ctx context.Context) ([]Setting, error) {
	rows, err := l.admin.Query(ctx, "SELECT n, current_setting(n) FROM unnest($1::text[]) WITH ORDINALITY AS t(n, i) ORDER BY i", shown)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Setting])
}

// Checkpoint starts a round from the same state for each contender: the pages that it touches first are logged in full.
func (l *Lab) Checkpoint(ctx context.Context) error {
	_, err := l.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// Database makes a fresh one. An old one of that name goes.
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
