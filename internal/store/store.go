// Package store holds all hot SQL of the engine, one file per verb. Each statement is a variable
// above the function that sends it, made by named, and its reasons stand over its text. Texts that
// differ in some parts are joined by a form: see form.go. testdata/sql has each one whole.
//
// Two rules hold for every statement. Its text is static: batches travel as arrays through unnest,
// so that Postgres plans the statement once. And it names the engine's schema, since inside a
// host's transaction the search_path is the host's. docs/internals.md states the locking rules.
//
// In comments, § followed by a number is a section of docs/specification.md, and T followed by a
// number is a hazard of docs/hazards.txt.
//
// The package imports internal/step, internal/pace and entpgx, and nothing else of the project.
package store

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
)

// Store runs the engine's statements in one Postgres schema, through ent's driver. It is safe for
// concurrent use.
type Store struct {
	db       *entpgx.Driver
	schema   string
	quoted   string
	rendered atomic.Pointer[rendering]
	apart    struct {
		claim                             aparts
		timeout, reap, expire, rest, skip apart
	}
	// recording: some process records a machine. Polls keep it current.
	recording atomic.Bool
	// keeping: there have been kept signals. See signal_keep.go.
	keeping atomic.Bool
	// looks: inserts look whether signals are kept for their keys. See signal_keep.go.
	looks atomic.Bool
	// graphs: this process has met nodes of graphs. See errNodes.
	graphs atomic.Bool
	// graphsSince is the constant of that name, but in tests.
	graphsSince int32
	// unpaid are keys of gates at which claims would wait for a transaction: see claimPaid.
	unpaid unpaidKeys
	// known are the gates that the last poll has found, or an insert: see gate_insert.go.
	known   atomic.Pointer[knownGates]
	learner learner
	busy    atomic.Bool   // a claim has found a gate locked since the last poll
	ahead   atomic.Bool   // a claim has met a gate's key with a time in the future: see turnBackSQL
	own     chan struct{} // one turn for each step's own transaction that may be open at a time
	again   chan struct{} // one turn for each of those that is a repetition: it may wait for a stranger
	// publishing has a turn for each step that may publish its progress at a time.
	publishing chan struct{}
	preferred  atomic.Pointer[preferred] // nil: there is none
	// company has engines of this process on other schemas of the same server; nil: there are none.
	company *Company
	home    atomic.Pointer[Company] // of the node where a distributed schema is; nil: the store does not know
	outside absence                 // from the rounds of the company
}

// New makes a Store for the engine's tables in schema. It does not touch the database.
func New(db *entpgx.Driver, schema string) *Store {
	s := &Store{
		db: db, schema: schema, quoted: pgx.Identifier{schema}.Sanitize(), graphsSince: graphsSince,
		own: make(chan struct{}, 1), again: make(chan struct{}, 1), publishing: make(chan struct{}, 1),
	}
	s.rendered.Store(&rendering{quoted: s.quoted})
	if pool := db.Pool(); pool != nil {
		// Claims and commits keep one connection for themselves. So do the statements that such steps
		// send outside of these transactions.
		s.own = make(chan struct{}, max(1, pool.Config().MaxConns-1))
		s.again = make(chan struct{}, max(1, (pool.Config().MaxConns-1)/2))
		// Progress is the least urgent that a process sends, and each try may wait for a held row.
		s.publishing = make(chan struct{}, max(1, pool.Config().MaxConns/4))
	}
	return s
}

// Schema returns the Postgres schema's name, unquoted.
func (s *Store) Schema() string { return s.schema }

// Driver returns the driver that sends the statements.
func (s *Store) Driver() *entpgx.Driver { return s.db }

// Queries returns ent's driver for reads: it sends each query as one transaction with the settings
// of the other statements, in one round trip. bitmaps allows it the index of labels, which Postgres
// reads by a bitmap scan only.
func (s *Store) Queries(bitmaps bool) *entpgx.Enclosed {
	around := func() (before, after []entpgx.Stmt) {
		all := s.enclose(fastLock, nil)
		before, after = all[:len(all)-1:len(all)-1], all[len(all)-1:]
		if bitmaps {
			before = append(before, s.stmt(bitmapsSQL, nil))
		}
		return before, after
	}
	// Locate may come later than this.
	return s.db.Enclose(around()).Rewrite(func(before []entpgx.Stmt, query string) ([]entpgx.Stmt, string) {
		if r := s.rendered.Load(); r.distributed() {
			before, _ = around()
			query = r.query(query)
		}
		return before, query
	})
}

// beginSQL pins READ COMMITTED. The row locks and re-checks of every statement are reasoned for
// that level, and a role or a database may have another default (T31).
var beginSQL = named("begin", `BEGIN ISOLATION LEVEL READ COMMITTED`)

var (
	endSQL      = named("commit", `COMMIT`, "transaction")
	rollbackSQL = named("rollback", `ROLLBACK`)
)

// settingsSQL overrides, for this transaction only, settings of the role that would break the
// engine (T40) and settings that let the planner leave the one good plan of the batch statements.
// Postgres plans those once, perhaps on an empty table, and the plan must hold on a full one (T98).
var settingsSQL = named("settings", `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true),
  set_config('idle_in_transaction_session_timeout', '`+idleLimit+`', true), set_config('enable_seqscan', 'off', true),
  set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
  set_config('datestyle', 'ISO', true),
  {untimed}`)

// bitmapsSQL precedes a query that uses the index of labels.
var bitmapsSQL = named("bitmaps", `SET LOCAL enable_bitmapscan = on`)

const (
	// fastLock bounds the waits of a statement of the fast lane. It takes rows with SKIP LOCKED, but a
	// unique index or the check of a foreign key can still make it wait for a transaction outside of
	// the engine.
	fastLock = "500ms"
	// briefLock bounds the wait of an outcome that is committed alone for the correlation keys of its
	// children, and the wait of a step's progress. It is tried again soon, and others have their turn
	// meanwhile.
	briefLock = "20ms"
	// slowLock bounds the wait of statements that have to wait: deliveries, inserts, and steps' own
	// transactions.
	slowLock = "2s"
	// statementLimit ends a statement that a broken disk or a lost plan has made endless. The caller
	// retries.
	statementLimit = "60s"
	// idleLimit ends a session whose process stands still between two round trips of a transaction,
	// and holds its locks: the row of a schedule that it fires, say. It is long for a process that
	// lives: between two round trips that only arranges what it sends. One that exceeds it tries
	// again.
	idleLimit = "10s"
)

// transaction sends statements as one transaction, in one pipeline and so one round trip.
func (s *Store) transaction(ctx context.Context, lock string, body ...entpgx.Stmt) error {
	return s.pipeline(ctx, s.enclose(lock, body)...)
}

// enclose puts statements between BEGIN with its settings and COMMIT.
func (s *Store) enclose(lock string, body []entpgx.Stmt) []entpgx.Stmt {
	return s.encloseWithin(lock, statementLimit, body)
}

// encloseWithin is enclose for statements of which each takes no longer than limit.
func (s *Store) encloseWithin(lock, limit string, body []entpgx.Stmt) []entpgx.Stmt {
	out := make([]entpgx.Stmt, 0, len(body)+3)
	out = append(out, s.stmt(beginSQL, nil), s.settings(lock, limit))
	out = append(out, body...)
	return append(out, s.stmt(endSQL, nil))
}

// settings returns the statement of the settings, which also hold while those behind it are
// prepared.
func (s *Store) settings(lock, limit string) entpgx.Stmt {
	stmt := s.stmt(settingsSQL, nil, lock, limit)
	stmt.Ahead = true
	return stmt
}

// one sends a single statement as a transaction.
func (s *Store) one(ctx context.Context, lock string, of *statement, read func(pgx.Rows) error, args ...any) error {
	return s.transaction(ctx, lock, s.stmt(of, read, args...))
}

// millis renders a duration for lock_timeout. It renders at least 1 ms, since 0 would mean no
// limit.
func millis(d time.Duration) string { return fmt.Sprintf("%dms", max(1, d.Milliseconds())) }

// micros renders a duration for Postgres, which multiplies it with interval '1 microsecond'.
func micros(d time.Duration) int64 { return d.Microseconds() }

// duration is the inverse of micros. It saturates: a row may be due in ten thousand years, which a
// Duration cannot hold, and an overflow would look like a row that is due now.
func duration(micros int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Microsecond)
	return time.Duration(max(-most, min(micros, most))) * time.Microsecond
}

// instances returns a number of instances for the text of an error: "1 instance", "2 instances".
func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}
