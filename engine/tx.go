package engine

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/entpgx"
	"github.com/gendurable/gendurable/internal/send"
	"github.com/gendurable/gendurable/internal/store"
)

// Tx has the engine's verbs inside a transaction of the host: what they write becomes visible at
// its commit and vanishes at its rollback. Like the transaction a Tx is for one goroutine. Make one
// by [Engine.WithPgx], [Engine.WithSQL] or [Engine.WithEnt] for each transaction.
//
// The engine neither begins nor ends the transaction, changes no setting of it, and works under any
// search_path. The host's isolation level, lock_timeout and context apply; under REPEATABLE READ
// and above, expect serialization failures. Bad input, ErrNoTarget, ErrInboxFull and ErrDuplicate
// leave the transaction usable. An error of Postgres has aborted it, as after any statement, and
// the engine repeats nothing: the transaction is the host's to repeat.
//
// Until its end the transaction holds the rows that it signalled and the keys that it inserted.
// The outcomes of these instances wait, and so do others that send to them or insert the same
// keys; no other work does. So signal late, and always in the same order.
type Tx struct {
	writer
	hosted *store.Hosted
	step   *store.StepTx              // nil outside of InTx
	outer  *entpgx.Driver             // that a savepoint of ent was set by; nil: none
	over   func(context.Context) bool // whether the transaction has ended; nil: a commit ends it
	mu     sync.Mutex
	queues []string
	ended  []int64  // instances that it cancelled
	missed []string // partition keys to promote
}

// SQLTx is a *sql.Tx, over pgx's stdlib, lib/pq or another driver of Postgres, or the *Tx of an ent
// client that was generated with the feature sql/execquery. The method Commit tells a transaction
// from a *sql.DB, which would commit each statement; the engine does not call it.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Commit() error
}

// WithPgx returns the engine's verbs inside a transaction of pgx, or a savepoint of one. A verb
// takes one or two round trips. Inside the transaction of [InTx] the engine nudges by itself.
func (e *Engine) WithPgx(tx pgx.Tx) *Tx {
	t := e.within(store.Pgx(tx))
	t.in(tx)
	return t
}

// in lets the verbs know the step, if tx is a step's own transaction.
func (t *Tx) in(tx pgx.Tx) {
	if own, ok := stepOf(tx); ok {
		t.step = own
		t.wake = t.step.Note
		t.hosted.Spare(t.step.Instance)
	}
}

// WithSQL returns the engine's verbs inside a transaction of database/sql or of an ent client. A
// verb takes one to four round trips.
//
// A wrapper of tx sees one query, "SELECT 1", whose context has ended: by it the engine asks entpgx
// for the transaction. It is not sent, and a trace may show it as failed.
func (e *Engine) WithSQL(tx SQLTx) *Tx {
	if tx == nil {
		return e.within(store.SQL(nil))
	}
	t := e.within(store.SQL(tx))
	if native, ok := entpgx.NativeOf(tx); ok {
		t.in(native.Tx)
	}
	return t
}

// WithEnt returns the engine's verbs inside a transaction that a driver of ent began, on any
// database driver. Its statements go through that driver, so a wrapper of it sees them. On entpgx
// itself a verb takes one or two round trips, elsewhere one to four. Wrappers see one query whose
// context has ended, as with WithSQL. If a wrapper does not pass it on to entpgx, the engine knows
// neither a step's own transaction nor a savepoint: then the next poll finds the work.
//
// A client that is generated with package entity/extension calls it: see the method Durable of its
// Tx. A caller that does not know whether the transaction is the outermost calls Committed after
// its commit, instead of Nudge.
func (e *Engine) WithEnt(tx dialect.Tx) *Tx {
	if tx == nil {
		return e.within(store.SQL(nil))
	}
	native, ok := entpgx.NativeOf(tx)
	if own, is := tx.(*entpgx.Tx); is {
		t := e.WithPgx(own.Pgx())
		t.outer = native.Outer
		return t
	}
	t := e.within(store.Foreign(entTx{tx: tx}))
	if ok {
		t.in(native.Tx)
		t.outer = native.Outer
	}
	if !plain(tx) {
		t.over = entTx{tx, ok}.over
	}
	return t
}

// plain reports whether the Commit of a transaction commits, as far as its type says.
func plain(tx dialect.Tx) bool {
	switch tx := tx.(type) {
	case *entpgx.Tx, *entsql.Tx:
		return true
	case *dialect.DebugTx:
		return plain(tx.Tx)
	default:
		return false
	}
}

// entTx is a transaction of an ent driver in the form that the store uses.
type entTx struct {
	tx    dialect.Tx
	known bool // whether it is known what it is to pgx, and that it is no savepoint of a driver's
}

func (t entTx) Exec(ctx context.Context, query string, args ...any) error {
	return t.tx.Exec(ctx, query, args, nil)
}

func (t entTx) Query(ctx context.Context, query string, args ...any) (store.Rows, error) {
	rows := &entsql.Rows{}
	if err := t.tx.Query(ctx, query, args, rows); err != nil {
		return nil, err
	}
	return rows, nil
}

// over reports whether the transaction takes no further statement. If it has ended, none is sent. A
// savepoint of pgx ends as a transaction does, so an end by pgx counts only if it is known to be
// none.
func (t entTx) over(ctx context.Context) bool {
	rows, err := t.Query(ctx, "SELECT 1")
	if err == nil {
		_ = rows.Close()
	}
	return errors.Is(err, sql.ErrTxDone) || t.known && errors.Is(err, pgx.ErrTxClosed)
}

func (e *Engine) within(tx store.Transaction) *Tx {
	rows := e.store.Within(tx)
	t := &Tx{hosted: rows}
	t.writer = writer{
		engine: e, rows: rows.Insert, beside: t.besides, wake: t.note,
		sender: &send.Sender{Inboxes: rows, Inbox: e.config.Limits.Inbox, Once: true, Logger: e.config.Logger},
	}
	return t
}

func (t *Tx) note(queues ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if !slices.Contains(t.queues, q) {
			t.queues = append(t.queues, q)
		}
	}
}

// besides keeps for Nudge what an insert did to other instances. Inside of InTx the heartbeats and
// the sweep of the keys tell of it.
func (t *Tx) besides(_ context.Context, effects store.Effects) {
	t.wake(effects.Queues...)
	if t.step == nil {
		t.mu.Lock()
		t.ended, t.missed = append(t.ended, effects.Ended...), append(t.missed, effects.Missed...)
		t.mu.Unlock()
	}
}

// Committed is [Tx.Nudge] after a Commit that may not have been the outermost: of a savepoint, or
// of a driver in whose transaction commits do nothing. Then it tells nothing yet. After a savepoint
// of a driver made by [entpgx.Within], [entpgx.Driver.Committed] nudges; otherwise Nudge does, or
// the next poll finds the work. Inside of [InTx] the engine nudges by itself.
func (t *Tx) Committed(ctx context.Context) {
	switch {
	case t.over != nil && t.outer == nil && !t.over(ctx):
	case t.outer != nil:
		t.outer.AfterCommit(t.Nudge)
	default:
		t.Nudge()
	}
}

// Nudge wakes this process's schedulers for rows written since the last call, and tells its steps
// and its calls of Wait of cancelled instances. Call it after the outermost commit: neither after a
// savepoint is released, nor after a rollback. Without it the next poll finds the work, within a
// second by default; other processes find it by polling in any case.
func (t *Tx) Nudge() {
	t.mu.Lock()
	queues, ended, missed := t.queues, t.ended, t.missed
	t.queues, t.ended, t.missed = nil, nil, nil
	t.mu.Unlock()
	t.engine.nudge(queues...)
	if len(ended) > 0 {
		t.engine.tell(context.Background(), ended)
	}
	t.engine.promote(context.Background(), missed)
}
