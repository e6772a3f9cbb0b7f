package migrations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"ariga.io/atlas/sql/migrate"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// DefaultSchema is the Postgres schema of an engine that was given none.
	DefaultSchema = "gendurable"

	// Empty is the version before the first migration.
	Empty = "0"
)

// Migrator brings the engine's Postgres schema to a version. The zero value lacks a Pool. It keeps
// no state: copies and concurrent use, in one process or many, are fine, and so is the Atlas CLI at
// the same time: one of them migrates, the others wait (the CLI: gives up).
//
// It needs the rights to create the schema, unless that exists, and to create in it. It dials one
// connection of its own, which has to reach Postgres itself or a proxy in session mode.
type Migrator struct {
	// Pool is where the address and the credentials are taken from. Required. None of its connections
	// is used to migrate.
	Pool *pgxpool.Pool
	// Schema is the engine's Postgres schema: tables and revisions. Empty: DefaultSchema. Created if
	// absent.
	Schema string
	// Logger is told of each step. Nil: nobody is.
	Logger *slog.Logger
}

// Up applies every pending migration and returns their versions in order; none if the schema is
// current. It may be run again after any error, and goes on where it was. A schema that is newer
// than this program is a [SchemaError].
func (m Migrator) Up(ctx context.Context) ([]string, error) {
	return m.To(ctx, Latest())
}

// Down undoes the newest applied migration and returns its version; none if the schema is [Empty].
// See [Migrator.To] for what is lost.
func (m Migrator) Down(ctx context.Context) ([]string, error) {
	return m.migrate(ctx, func(applied []string) (string, error) {
		if len(applied) < 2 {
			return Empty, nil
		}
		return applied[len(applied)-2], nil
	})
}

// To applies or undoes migrations until version is the newest one applied, and returns the versions
// it applied or undid, in the order it did. [Empty] undoes all. An unknown version is an error
// before anything is done.
//
// Going down undoes the schema, not what has happened in it: columns are dropped with what they
// hold (idempotency keys, claims, crashes, children's rounds), [Empty] drops the tables. Stop all
// engines before: they work with exactly one version. Indexes, too, are only ever built and dropped
// concurrently.
func (m Migrator) To(ctx context.Context, version string) ([]string, error) {
	if version != Empty && !slices.Contains(Versions(), version) {
		return nil, fmt.Errorf("migrate schema %q: no version %q", m.schema(), version)
	}
	return m.migrate(ctx, func([]string) (string, error) { return version, nil })
}

func (m Migrator) schema() string {
	if m.Schema == "" {
		return DefaultSchema
	}
	return m.Schema
}

func (m Migrator) logger() *slog.Logger {
	if m.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return m.Logger
}

// migrate goes to the version that choose derives from the ones that are applied.
func (m Migrator) migrate(ctx context.Context, choose func(applied []string) (string, error)) (done []string, err error) {
	if m.Pool == nil {
		return nil, errors.New("migrate: Migrator.Pool is nil")
	}
	dir, err := directory()
	if err != nil {
		return nil, err
	}
	s, err := openSession(ctx, m.Pool, m.schema(), m.logger())
	if err != nil {
		return nil, fmt.Errorf("migrate schema %q: %w", m.schema(), err)
	}
	defer func() {
		if closing := s.close(ctx); closing != nil {
			err = errors.Join(err, fmt.Errorf("migrate schema %q: %w", m.schema(), closing))
		}
	}()

	applied, err := s.applied(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate schema %q: %w", m.schema(), err)
	}
	if len(applied) > 0 && applied[len(applied)-1] > Latest() {
		return nil, &SchemaError{Schema: m.schema(), State: StateNewer, Current: applied[len(applied)-1], Latest: Latest()}
	}
	target, err := choose(applied)
	if err != nil {
		return nil, err
	}
	steps, err := m.steps(ctx, s, dir, target, applied)
	if err != nil {
		return nil, fmt.Errorf("migrate schema %q to version %s: %w", m.schema(), target, err)
	}
	for _, step := range steps {
		start := time.Now()
		if err := persistently(ctx, s.log, step.run); err != nil {
			return done, fmt.Errorf("migrate schema %q: %s version %s: %w", m.schema(), step.verb, step.version, err)
		}
		done = append(done, step.version)
		s.log.LogAttrs(ctx, slog.LevelInfo, "migrated", slog.String("schema", m.schema()), slog.String("verb", step.verb),
			slog.String("migration", step.version), slog.Duration("took", time.Since(start)))
	}
	return done, nil
}

// step is one migration to apply or to undo.
type step struct {
	version, verb string
	run           func(ctx context.Context) error
}

func (m Migrator) steps(ctx context.Context, s *session, dir *migrate.MemDir, target string, applied []string) ([]step, error) {
	files, err := dir.Files()
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var steps []step
	if len(applied) > 0 && applied[len(applied)-1] > target {
		for _, file := range slices.Backward(files) {
			if file.Version() > target && slices.Contains(applied, file.Version()) {
				steps = append(steps, step{file.Version(), "undo", func(ctx context.Context) error { return s.undo(ctx, file) }})
			}
		}
		return steps, nil
	}
	pending, err := s.pending(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, file := range pending {
		if file.Version() <= target {
			steps = append(steps, step{file.Version(), "apply", func(ctx context.Context) error { return s.apply(ctx, dir, file) }})
		}
	}
	return steps, nil
}

const (
	attempts   = 60
	firstPause = 100 * time.Millisecond
	longPause  = time.Second
)

// persistently runs a step again while it fails only because of what others do: a lock not had in
// time, and the deadlock that a concurrent index build runs into with a session of the CLI that
// waits for the migration lock inside a statement. The latter lasts until that session gives up, by
// default after ten seconds.
func persistently(ctx context.Context, log *slog.Logger, run func(ctx context.Context) error) error {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err := run(ctx)
		if err == nil || attempt == attempts || !transient(err) {
			return err
		}
		log.LogAttrs(ctx, slog.LevelWarn, "migration held up by other sessions, trying again",
			slog.Int("attempt", attempt), slog.Any("error", err))
		if err := wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longPause)
	}
}

func transient(err error) bool {
	const deadlockDetected, lockNotAvailable = "40P01", "55P03"
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (refused.Code == deadlockDetected || refused.Code == lockNotAvailable)
}

func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// quoted is a name as an identifier.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
