package engine

import (
	"context"
	"database/sql"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/internal/store"
	"github.com/gendurable/gendurable/signal"
)

// Tx has the engine's verbs inside a transaction of the host: what they write becomes visible at
// its commit and vanishes at its rollback. Like the transaction a Tx is for one goroutine. Make one
// by [Engine.WithPgx] or [Engine.WithSQL] for each transaction.
//
// The engine neither begins nor ends the transaction, changes no setting of it, and works under any
// search_path. The host's isolation level, lock_timeout and context apply; under REPEATABLE READ
// and above, expect serialization failures. Bad input, ErrNoTarget, ErrInboxFull and ErrDuplicate
// leave the transaction usable. An error of Postgres has aborted it, as after any statement, and
// the engine repeats nothing: the transaction is the host's to repeat.
//
// Until its end the transaction holds the rows that it signalled and the keys that it inserted. The
// outcomes of these instances wait, and so do others who send to them or insert the same keys;
// nobody else does. So signal late, and always in the same order.
type Tx struct {
	writer
	mu     sync.Mutex
	queues []string
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
	if step, ok := tx.(*store.StepTx); ok {
		t.wake = step.Note
	}
	return t
}

// WithSQL returns the engine's verbs inside a transaction of database/sql or of an ent client. A
// verb takes one to four round trips.
func (e *Engine) WithSQL(tx SQLTx) *Tx {
	if tx == nil {
		return e.within(store.SQL(nil))
	}
	return e.within(store.SQL(tx))
}

func (e *Engine) within(tx store.Transaction) *Tx {
	rows := e.store.Within(tx)
	t := &Tx{}
	t.writer = writer{
		engine: e, rows: rows.Insert, wake: t.note,
		sender: &signal.Sender{Inboxes: rows, Inbox: e.config.Limits.Inbox, Once: true, Logger: e.config.Logger},
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

// Nudge wakes this process's schedulers for what was written since the last call. Call it after the
// commit. Without it the next poll finds the work, within a second by default; other processes find
// it by polling in any case.
func (t *Tx) Nudge() {
	t.mu.Lock()
	queues := t.queues
	t.queues = nil
	t.mu.Unlock()
	t.engine.nudge(queues...)
}
