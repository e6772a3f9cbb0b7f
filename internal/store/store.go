// Package store holds all hot SQL of the engine, one file per verb: each statement a constant above the function that sends it, the
// reasons over it.
//
// Two rules hold for every statement. Its text is static: batches ride in as arrays through unnest, so that Postgres plans it once. And
// it names the engine's schema: inside a host's transaction the search_path is the host's. Locking rules: docs/internals.md.
//
// It imports internal/step and entpgx, nothing else of the project.
package store

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Store runs the engine's statements in one Postgres schema, through ent's driver. Safe for concurrent use.
type Store struct {
	db       *entpgx.Driver
	schema   string
	quoted   string
	rendered sync.Map // statement's text → the same with the schema in it
	apart    struct{ claim, timeout, reap, expire apart }
	own      chan struct{} // a turn for each step's own transaction that may be open at a time
}

// New makes a Store for the engine's tables in schema. It does not touch the database.
func New(db *entpgx.Driver, schema string) *Store {
	s := &Store{db: db, schema: schema, quoted: pgx.Identifier{schema}.Sanitize(), own: make(chan struct{}, 1)}
	if pool := db.Pool(); pool != nil {
		// One connection is left to claims and commits, and to what those steps themselves do outside of their transactions.
		s.own = make(chan struct{}, max(1, pool.Config().MaxConns-1))
	}
	return s
}

// Schema is the Postgres schema's name, unquoted.
func (s *Store) Schema() string { return s.schema }

// Driver is the driver the statements go through.
func (s *Store) Driver() *entpgx.Driver { return s.db }

// stmt names a statement and renders its {s} to the schema, once.
func (s *Store) stmt(name, text string, read func(pgx.Rows) error, args ...any) entpgx.Stmt {
	sql, ok := s.rendered.Load(text)
	if !ok {
		sql, _ = s.rendered.LoadOrStore(text, strings.ReplaceAll(text, "{s}", s.quoted))
	}
	return entpgx.Stmt{Name: name, SQL: sql.(string), Args: args, Read: read} //nolint:forcetypeassert // only strings are stored
}

// beginSQL pins READ COMMITTED: the row locks and re-checks of every statement are reasoned for it, and a role's or database's default
// may be another (T31).
const beginSQL = `BEGIN ISOLATION LEVEL READ COMMITTED`

// settingsSQL overrides, for this transaction only, what a role may have set against us (T40) and what
// lets the planner leave the one good plan of the batch statements: those are planned once, maybe on an
// empty table, and must hold on a full one (T98).
const settingsSQL = `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
  set_config('idle_in_transaction_session_timeout', '60s', true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
  ` + untimed

// untimed switches off a role's limit on whole transactions, which Postgres knows since version 17:
// another value would not restart a clock that runs already. The limit on statements bounds what is left.
const untimed = `CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
  THEN set_config('transaction_timeout', '0', true) END`

// bitmapsSQL goes before a statement that goes by the index of labels: such an index is read no other way.
const bitmapsSQL = `SET LOCAL enable_bitmapscan = on`

const (
	// fastLock bounds what a statement of the fast lane may wait: it takes rows with SKIP LOCKED, but a unique index or a foreign key's
	// check can still make it wait for a stranger's transaction.
	fastLock = "500ms"
	// briefLock bounds what an outcome alone may wait for the correlation keys of its children: it
	// is tried again soon, and meanwhile others have its turn.
	briefLock = "20ms"
	// slowLock bounds the wait of those that must wait: deliveries, inserts, steps' own transactions.
	slowLock = "2s"
	// statementLimit ends a statement that a broken disk or a lost plan has made endless; the caller retries.
	statementLimit = "60s"
)

// transaction wraps statements as one pipeline, one round trip, all or nothing.
func (s *Store) transaction(ctx context.Context, lock string, body ...entpgx.Stmt) error {
	return s.db.Pipeline(ctx, s.enclose(lock, body)...)
}

// enclose puts statements between BEGIN with its settings and COMMIT.
func (s *Store) enclose(lock string, body []entpgx.Stmt) []entpgx.Stmt {
	out := make([]entpgx.Stmt, 0, len(body)+3)
	out = append(out, s.stmt("begin", beginSQL, nil), s.stmt("settings", settingsSQL, nil, lock, statementLimit))
	out = append(out, body...)
	return append(out, s.stmt("commit", `COMMIT`, nil))
}

// one is a transaction of a single statement.
func (s *Store) one(ctx context.Context, lock, name, text string, read func(pgx.Rows) error, args ...any) error {
	return s.transaction(ctx, lock, s.stmt(name, text, read, args...))
}

// millis is how a wait reaches lock_timeout, where nothing would be for ever.
func millis(d time.Duration) string { return fmt.Sprintf("%dms", max(1, d.Milliseconds())) }

// micros is how durations reach Postgres: times interval '1 microsecond'.
func micros(d time.Duration) int64 { return d.Microseconds() }

// duration is micros backwards. A row may be due in ten thousand years: that is more than a Duration holds, and must not come out as now.
func duration(micros int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Microsecond)
	return time.Duration(max(-most, min(micros, most))) * time.Microsecond
}
