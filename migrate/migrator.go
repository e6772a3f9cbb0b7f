package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	atlas "ariga.io/atlas/sql/migrate"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/migrations"
)

// Migrator brings the engine's Postgres schema to a version. The zero value lacks a Pool. It keeps
// no state: it may be copied, and used concurrently in one process or many. One migrator at a time
// migrates, and the others wait. The Atlas CLI takes the same lock, and gives up where a Migrator
// waits.
//
// It needs the right to create the schema, unless that exists, and to create in it. It dials one
// separate connection, which has to reach Postgres itself or a proxy in session mode.
type Migrator struct {
	// Pool supplies the address and the credentials. It is required. The Migrator uses none of its
	// connections to migrate.
	Pool *pgxpool.Pool
	// Schema is the engine's Postgres schema, with its tables and revisions; "":
	// migrations.DefaultSchema. The Migrator creates it if it does not exist.
	Schema string
	// Logger logs each step; nil: no log.
	Logger *slog.Logger
}

// Up applies every pending migration and returns their versions in order; none if the schema is
// current. After any error it may be run again, and resumes. It returns a [migrations.SchemaError]
// if the schema is newer than this program, or from before the first release.
func (m Migrator) Up(ctx context.Context) ([]string, error) {
	return m.To(ctx, migrations.Latest())
}

// Down undoes the newest applied migration and returns its version; none if the schema is
// [migrations.Empty]. [Migrator.To] says which data is lost.
func (m Migrator) Down(ctx context.Context) ([]string, error) {
	return m.migrate(ctx, func(applied []string) (string, error) {
		if len(applied) < 2 {
			return migrations.Empty, nil
		}
		return applied[len(applied)-2], nil
	})
}

// To applies or undoes migrations until version is the newest applied one. It returns the versions
// that it applied or undid, in that order. [migrations.Empty] undoes all. For an unknown version it
// returns an error and does nothing.
//
// On the way down it undoes the schema, not the work that was done in it: dropped columns lose
// their data, and [migrations.Empty] drops the tables. Stop all engines before: they work with
// exactly one version. On the way down, too, indexes are built and dropped concurrently.
func (m Migrator) To(ctx context.Context, version string) ([]string, error) {
	if version != migrations.Empty && !slices.Contains(migrations.Versions(), version) {
		return nil, fmt.Errorf("migrate schema %q: there is no version %q: migrations.Versions lists them", m.schema(), version)
	}
	return m.migrate(ctx, func([]string) (string, error) { return version, nil })
}

func (m Migrator) schema() string {
	if m.Schema == "" {
		return migrations.DefaultSchema
	}
	return m.Schema
}

func (m Migrator) logger() *slog.Logger {
	if m.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return m.Logger
}

// Status reads how far the schema is migrated. It only reads, and works while a migration runs.
func (m Migrator) Status(ctx context.Context) (migrations.Status, error) {
	if m.Pool == nil {
		return migrations.Status{}, errors.New("read the migration status: Migrator.Pool is nil")
	}
	return migrations.ReadStatus(ctx, m.Pool, m.schema())
}

// migrate goes to the version that choose derives from the applied ones.
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
	if len(applied) > 0 {
		refused := &migrations.SchemaError{Schema: m.schema(), Current: applied[len(applied)-1], Latest: migrations.Latest()}
		switch {
		case applied[0] < migrations.Versions()[0]:
			refused.State = migrations.StateUnreleased
			return nil, refused
		case refused.Current > refused.Latest:
			refused.State = migrations.StateNewer
			return nil, refused
		}
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

func (m Migrator) steps(ctx context.Context, s *session, dir *atlas.MemDir, target string, applied []string) ([]step, error) {
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

// persistently repeats a step that fails only because of other sessions: it did not get a lock in
// time, or a concurrent index build ran into a deadlock with a session of the CLI that waits for
// the migration lock inside a statement. That session gives up after ten seconds by default.
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

// quoted returns a name as an identifier of SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
