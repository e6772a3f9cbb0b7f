package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/migrations"
)

// connectTimeout bounds how long the server may take to answer at all.
const connectTimeout = 10 * time.Second

// pool makes a pool on a database, until the program ends, and connects to nothing yet. of is the
// flag or variable that named the database.
func (a *app) pool(ctx context.Context, of, address string, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, usagef("%s: %w; want postgres://user@host/database, or key=value pairs", of, err) // the error holds no password
	}
	config.MaxConns = 4
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "gendurable cli"
	}
	// Every proxy lets this mode through. Times come as text in it, of which pgx reads the ISO style
	// only. A proxy lets the setting through, too, and it precedes the role's.
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnConfig.RuntimeParams["datestyle"] = "ISO"
	for _, change := range configure {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, usagef("%s: %w", of, err)
	}
	a.pools = append(a.pools, pool)
	return pool, nil
}

// connect opens a pool on the database, and checks that the database can be reached.
func (a *app) connect(ctx context.Context, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	if a.place != nil {
		return a.place.reach(ctx)
	}
	if a.DatabaseURL == "" {
		return nil, usagef("no database: set DATABASE_URL, or give --database-url postgres://user@host/database")
	}
	pool, err := a.pool(ctx, "--database-url", a.DatabaseURL, configure...)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := pool.Ping(limited); err != nil {
		return nil, &exitError{codeNoConnection, fmt.Errorf("cannot reach the database: %w\n  "+
			"is the server up, and is --database-url (or DATABASE_URL) its address, with a role that may log in?", err)}
	}
	return pool, nil
}

// database is a client of the engine, on a schema of the version that it needs. Its methods stay
// within the bounds.
type database struct {
	*engine.Bounded

	all    *engine.Engine // for what is bound otherwise
	within engine.Bounds
	pool   *pgxpool.Pool
	schema string
}

// open connects, and refuses a schema that this program cannot work with.
func (a *app) open(ctx context.Context) (*database, error) {
	pool, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	d, err := a.client(pool)
	if err == nil {
		err = a.current(ctx, pool)
	}
	return d, err
}

func (a *app) client(pool *pgxpool.Pool) (*database, error) {
	within, err := a.bounds()
	if err != nil {
		return nil, err
	}
	bound := func(e *engine.Engine) *database {
		return &database{Bounded: e.Within(within), all: e, within: within, pool: pool, schema: a.Schema}
	}
	if a.place != nil {
		return bound(a.place.Engine(a.place.n)), nil
	}
	eng, err := engine.New(engine.Config{Pool: pool, Schema: a.Schema, Logger: a.logger(slog.LevelWarn)})
	if err != nil {
		return nil, usagef("%w", err)
	}
	return bound(eng), nil
}

// logger writes the engine's log to stderr.
func (a *app) logger(level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if a.JSON {
		return slog.New(slog.NewJSONHandler(a.console.errs, options))
	}
	return slog.New(slog.NewTextHandler(a.console.errs, options))
}

// current checks the schema. Its errors say which command of this program helps.
func (a *app) current(ctx context.Context, db migrations.Querier) error {
	err := migrations.Check(ctx, db, a.Schema)
	wrong, ok := errors.AsType[*migrations.SchemaError](err)
	if !ok {
		return err
	}
	return &exitError{codeSchema, errors.New(a.unfit(wrong.State, wrong.Current, wrong.Latest))}
}

// unfit says what is wrong with a schema, and what to do.
func (a *app) unfit(state migrations.State, current, latest string) string {
	command := "gendurable migrate up"
	if a.Schema != migrations.DefaultSchema {
		command += " --schema " + word(a.Schema)
	}
	switch state { //nolint:exhaustive // no caller asks about a current one
	case migrations.StateMissing:
		return fmt.Sprintf("schema %q has no tables: %s makes them; or is --schema another one?", a.Schema, command)
	case migrations.StateUnreleased:
		return (&migrations.SchemaError{Schema: a.Schema, State: state, Current: current, Latest: latest}).Error()
	case migrations.StateOlder:
		return fmt.Sprintf("schema %q is older than this program: it has version %s, the program needs %s: %s", a.Schema, current, latest, command)
	}
	return fmt.Sprintf("schema %q is newer than this program: it has version %s, the program knows up to %s: use the gendurable of that release",
		a.Schema, current, latest)
}

// within fills the slots of a statement: the schema, and numbers that the store has names for.
func within(schema, sql string) string { return store.Within(schema, sql) }

// word quotes a text such that a shell reads it as one word.
func word(text string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.,:/=+@%", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// now returns the server's time, by which the engine goes.
func (d *database) now(ctx context.Context) (time.Time, error) { return serverTime(ctx, d.pool) }

func serverTime(ctx context.Context, pool *pgxpool.Pool) (t time.Time, err error) {
	err = pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&t)
	return t, err
}
