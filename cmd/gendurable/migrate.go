package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/migrate"
	"github.com/gendurable/gendurable/migrations"
)

type migrateCommands struct {
	Up     migrateUp     `cmd:"" help:"Apply the pending migrations."`
	Down   migrateDown   `cmd:"" help:"Undo the newest migration, or all down to a version; asks first."`
	Status migrateStatus `cmd:"" help:"Show the schema's version; exit code 5 unless it is current."`
	SQL    migrateSQL    `cmd:"" help:"Print the SQL of the pending migrations."                         name:"sql"`
	Dir    migrateDir    `cmd:"" help:"Write the migrations, and an atlas.hcl, for the Atlas CLI."`
}

// migrated is the result of up and down.
type migrated struct {
	Schema   string   `json:"schema"`
	Versions []string `json:"versions"` // in the order in which they were applied or undone
	Current  string   `json:"current"`
}

// standing is the status of a schema.
type standing struct {
	Schema  string           `json:"schema"`
	State   migrations.State `json:"state"`
	Current string           `json:"current"`
	Latest  string           `json:"latest"`
	Pending []string         `json:"pending"`
}

type migrateUp struct {
	To string `help:"Stop at this version." placeholder:"VERSION"`
}

func (*migrateUp) lasts() bool { return true }

// Run runs the command.
func (c *migrateUp) Run(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	return a.migrate(ctx, pool, "applied", func(m migrate.Migrator) ([]string, error) {
		if c.To == "" {
			return m.Up(ctx)
		}
		if status, err := m.Status(ctx); err != nil {
			return nil, err
		} else if c.To < status.Current {
			return nil, usagef("--to: the schema has version %s already: to go back is migrate down --to %s", status.Current, c.To)
		}
		return m.To(ctx, c.To)
	})
}

type migrateDown struct {
	To  string `help:"Undo all migrations after this version; 0 drops the tables." placeholder:"VERSION"`
	Yes bool   `help:"Do not ask."`
}

func (*migrateDown) lasts() bool { return true }

// Run runs the command.
func (c *migrateDown) Run(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	return a.migrate(ctx, pool, "undone", func(m migrate.Migrator) ([]string, error) {
		status, err := m.Status(ctx)
		if err != nil {
			return nil, err
		}
		if status.State == migrations.StateUnreleased {
			return m.Down(ctx) // which says what helps
		}
		undo := slices.DeleteFunc(migrations.Versions(), func(v string) bool { return v > status.Current || c.To != "" && v <= c.To })
		if c.To == "" {
			undo = undo[max(0, len(undo)-1):]
		} else if err := known(c.To, true); err != nil {
			return nil, err
		}
		if len(undo) == 0 {
			return nil, nil
		}
		slices.Reverse(undo)
		question := fmt.Sprintf("Undo %s in schema %q? Columns and tables go with what they hold; all engines must be stopped.",
			strings.Join(undo, ", "), a.Schema)
		if err := a.console.confirm(ctx, question, c.Yes); err != nil {
			return nil, err
		}
		if c.To == "" {
			return m.Down(ctx)
		}
		return m.To(ctx, c.To)
	})
}

func known(version string, empty bool) error {
	if empty && version == migrations.Empty || slices.Contains(migrations.Versions(), version) {
		return nil
	}
	return usagef("--to: no version %q; the oldest is %s, the newest %s", version, migrations.Versions()[0], migrations.Latest())
}

// migrate applies or undoes migrations, and shows how far it came, also if it was stopped on the
// way.
func (a *app) migrate(ctx context.Context, pool *pgxpool.Pool, did string, how func(migrate.Migrator) ([]string, error)) error {
	m := migrate.Migrator{Pool: pool, Schema: a.Schema, Logger: a.logger(slog.LevelWarn)}
	versions, failed := how(m)
	if failed != nil && len(versions) == 0 {
		return failed
	}
	status, err := m.Status(ctx)
	if err != nil {
		return err
	}
	err = a.show(migrated{a.Schema, some(versions), status.Current}, func(w io.Writer) {
		for _, v := range versions {
			fmt.Fprintln(w, did, v)
		}
		fmt.Fprintf(w, "schema %q has version %s: %s\n", a.Schema, status.Current, status.State)
	})
	if failed != nil {
		return failed
	}
	return err
}

type migrateStatus struct{}

// Run runs the command.
func (*migrateStatus) Run(ctx context.Context, a *app, pool *pgxpool.Pool) error {
	status, err := migrate.Migrator{Pool: pool, Schema: a.Schema}.Status(ctx)
	if err != nil {
		return err
	}
	out := standing{status.Schema, status.State, status.Current, status.Latest, some(status.Pending)}
	err = a.show(out, func(w io.Writer) {
		fmt.Fprintf(w, "schema   %s\nstate    %s\ncurrent  %s\nlatest   %s\n", out.Schema, out.State, out.Current, out.Latest)
		for _, v := range out.Pending {
			fmt.Fprintln(w, "pending ", v)
		}
		if status.State != migrations.StateCurrent {
			fmt.Fprintln(w, a.unfit(status.State, status.Current, status.Latest))
		}
	})
	if err == nil && status.State != migrations.StateCurrent {
		return &exitError{code: codeUnmet}
	}
	return err
}

type migrateSQL struct {
	All  bool `help:"Print the SQL of all migrations; this needs no database."`
	Down bool `help:"Print the SQL of the inverses, newest first."`
}

// statements is the SQL of one migration.
type statements struct {
	Version string `json:"version"`
	File    string `json:"file"`
	SQL     string `json:"sql"`
}

// Run runs the command.
func (c *migrateSQL) Run(ctx context.Context, a *app) error {
	versions := migrations.Versions()
	if !c.All {
		pool, err := a.connect(ctx)
		if err != nil {
			return err
		}
		status, err := migrate.Migrator{Pool: pool, Schema: a.Schema}.Status(ctx)
		if err != nil {
			return err
		}
		versions = slices.DeleteFunc(versions, func(v string) bool { return slices.Contains(status.Pending, v) == c.Down })
	}
	files, err := c.files(versions)
	if err != nil {
		return err
	}
	return a.show(map[string]any{"schema": a.Schema, "migrations": some(files)}, func(w io.Writer) {
		fmt.Fprintf(w, "-- To be read: who runs it by hand leaves no revisions behind. Names are those of the search path.\nSET search_path TO %s;\n",
			within(a.Schema, "{s}"))
		for _, f := range files {
			fmt.Fprintf(w, "\n-- %s\n%s", f.File, f.SQL)
		}
	})
}

func (c *migrateSQL) files(versions []string) (files []statements, err error) {
	folder := ""
	if c.Down {
		folder = "down/"
		slices.Reverse(versions)
	}
	for _, version := range versions {
		names, err := fs.Glob(migrations.FS(), folder+version+"_*.sql")
		if err != nil || len(names) != 1 {
			return nil, fmt.Errorf("find migration %s: %d files, %w", version, len(names), err)
		}
		content, err := migrations.FS().ReadFile(names[0])
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", version, err)
		}
		files = append(files, statements{version, names[0], string(content)})
	}
	return files, nil
}

// some returns the list, or an empty one for nil, which JSON writes as [].
func some[T any](of []T) []T {
	if of == nil {
		return []T{}
	}
	return of
}
