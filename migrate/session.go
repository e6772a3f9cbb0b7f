package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	atlas "ariga.io/atlas/sql/migrate"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// closeTimeout bounds how long an ended migration takes to release its lock.
const closeTimeout = 5 * time.Second

// session is one connection that holds the migration lock and works in one schema.
type session struct {
	db        *sql.DB
	conn      *sql.Conn
	schema    string
	revisions *revisions // on conn; a transaction has others
	log       *slog.Logger
}

// openSession dials, waits for the lock, and creates the schema and the revision table if there are
// none.
//
// The connection is not one of the pool's, since its settings must not reach another user of the
// pool. Only ctx limits the wait.
func openSession(ctx context.Context, pool *pgxpool.Pool, schema string, log *slog.Logger) (_ *session, err error) {
	db := dial(pool)
	s := &session{db: db, schema: schema, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	if s.conn, err = db.Conn(ctx); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s.revisions = &revisions{db: s.conn, schema: schema}
	for name, value := range map[string]string{
		"search_path": quoted(schema),
		// A role's own limits are made for statements, not for an index build. The files set the limits
		// that they need.
		"lock_timeout": "0", "statement_timeout": "0", "idle_in_transaction_session_timeout": "0",
		"idle_session_timeout": "0", "transaction_timeout": "0",
		"default_transaction_isolation": "read committed",
	} {
		if _, err := s.conn.ExecContext(ctx, setKnown, name, value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	if err := s.createSchema(ctx); err != nil {
		return nil, err
	}
	if err := s.revisions.create(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// setKnown sets what the server knows: transaction_timeout came with Postgres 17.
const setKnown = "SELECT set_config($1, $2, false) WHERE current_setting($1, true) IS NOT NULL"

func dial(pool *pgxpool.Pool) *sql.DB {
	config := pool.Config()
	connConfig := config.ConnConfig
	// When ctx ends, the server gets a cancel request: otherwise it would go on building an index,
	// and holding the lock, in vain.
	connConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: closeTimeout}
	}
	var options []stdlib.OptionOpenDB
	if config.BeforeConnect != nil {
		options = append(options, stdlib.OptionBeforeConnect(config.BeforeConnect))
	}
	if config.AfterConnect != nil {
		options = append(options, stdlib.OptionAfterConnect(config.AfterConnect))
	}
	return stdlib.OpenDB(*connConfig, options...)
}

// lockKey returns the Atlas CLI's key: the hash of its name for the lock.
func lockKey() int64 {
	hash := fnv.New32()
	_, _ = hash.Write([]byte("atlas_migrate_execute")) // a hash does not fail
	return int64(hash.Sum32())
}

// lock polls for the lock. A wait in pg_advisory_lock would deadlock with the holder's concurrent
// index build, which waits for every statement that is older than itself.
func (s *session) lock(ctx context.Context) error {
	const firstPause, longPause = 10 * time.Millisecond, 500 * time.Millisecond
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		var got bool
		if err := s.conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", lockKey()).Scan(&got); err != nil {
			return fmt.Errorf("take the migration lock: %w", err)
		}
		if got {
			return nil
		}
		if err := wait(ctx, pause/2+rand.N(pause)); err != nil { //nolint:gosec // jitter is no secret
			return fmt.Errorf("wait for another migration to end: %w", err)
		}
	}
}

// close releases the lock before it closes the connection: the server may take a while to notice
// that.
func (s *session) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if s.conn != nil {
		// On a broken connection this fails, but then the session and its lock are gone.
		_, _ = s.conn.ExecContext(ctx, "SELECT pg_advisory_unlock_all()")
		_ = s.conn.Close()
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close the connection: %w", err)
	}
	return nil
}

func (s *session) createSchema(ctx context.Context) error {
	// The query comes first, since IF NOT EXISTS demands the right to create schemas even if the
	// schema exists.
	var exists bool
	if err := s.conn.QueryRowContext(ctx, "SELECT to_regnamespace($1) IS NOT NULL", quoted(s.schema)).Scan(&exists); err != nil {
		return fmt.Errorf("look for the schema: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := s.conn.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+quoted(s.schema)); err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	return nil
}

// applied returns the versions in the revision table, oldest first, one that was interrupted
// included.
func (s *session) applied(ctx context.Context) ([]string, error) {
	revisions, err := s.revisions.ReadRevisions(ctx)
	if err != nil {
		return nil, err
	}
	versions := make([]string, len(revisions))
	for i, revision := range revisions {
		versions[i] = revision.Version
	}
	return versions, nil
}

// pending returns the files that have not been applied completely.
func (s *session) pending(ctx context.Context, dir atlas.Dir) ([]atlas.File, error) {
	executor, err := newExecutor(s.conn, dir, s.revisions)
	if err != nil {
		return nil, err
	}
	files, err := executor.Pending(ctx)
	if errors.Is(err, atlas.ErrNoPendingFiles) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find pending migrations: %w", err)
	}
	return files, nil
}

// apply runs one file as its transaction mode says. A file without a transaction always runs from
// its first statement, also after an earlier run was cut off: only then does it find and replace
// what that run left behind, however often.
func (s *session) apply(ctx context.Context, dir atlas.Dir, file atlas.File) error {
	if transactional(file) {
		return s.inTransaction(ctx, func(tx *sql.Tx) error {
			return execute(ctx, tx, dir, &revisions{db: tx, schema: s.schema}, file)
		})
	}
	if err := s.revisions.DeleteRevision(ctx, file.Version()); err != nil {
		return err
	}
	return execute(ctx, s.conn, dir, s.revisions, file)
}

// undo runs the inverse of a file, always from its first statement, and deletes the revision.
func (s *session) undo(ctx context.Context, file atlas.File) error {
	down, err := inverse(file)
	if err != nil {
		return err
	}
	statements, err := down.StmtDecls()
	if err != nil {
		return fmt.Errorf("split the inverse: %w", err)
	}
	run := func(db querier) error {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement.Text); err != nil {
				return fmt.Errorf("%s: %w", headline(statement), err)
			}
		}
		return (&revisions{db: db, schema: s.schema}).DeleteRevision(ctx, file.Version())
	}
	if transactional(down) {
		return s.inTransaction(ctx, func(tx *sql.Tx) error { return run(tx) })
	}
	return run(s.conn)
}

func (s *session) inTransaction(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

func execute(ctx context.Context, db querier, dir atlas.Dir, revisions *revisions, file atlas.File) error {
	executor, err := newExecutor(db, dir, revisions)
	if err != nil {
		return err
	}
	err = executor.Execute(ctx, file)
	// After a statement failed, the executor's own statements fail in the aborted transaction, too,
	// and only hide the cause.
	if failed, ok := errors.AsType[*atlas.StmtExecError](err); ok {
		return fmt.Errorf("%s: %w", headline(failed.Stmt), failed.Err)
	}
	return err
}

// headline returns the first line of a statement: enough to find it in its file.
func headline(statement *atlas.Stmt) string {
	line, _, _ := strings.Cut(statement.Text, "\n")
	return strings.TrimSuffix(line, ";")
}

func newExecutor(db querier, dir atlas.Dir, revisions *revisions) (*atlas.Executor, error) {
	executor, err := atlas.NewExecutor(driver{querier: db}, dir, revisions,
		atlas.WithAllowDirty(true), atlas.WithOperatorVersion("gendurable"))
	if err != nil {
		return nil, fmt.Errorf("open atlas: %w", err)
	}
	return executor, nil
}

// driver is a database as far as Atlas' executor needs it to apply files: it runs statements.
// Atlas' own driver of Postgres, which also inspects and plans, would link HCL into every host.
type driver struct {
	querier
	atlas.Driver // nil: the executor calls nothing else
}

// ExecContext runs a statement.
func (d driver) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return d.querier.ExecContext(ctx, query, args...)
}

// QueryContext runs a query.
func (d driver) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.querier.QueryContext(ctx, query, args...)
}

// CheckClean accepts everything else in the database: that belongs to the host.
func (driver) CheckClean(context.Context, *atlas.TableIdent) error { return nil }
