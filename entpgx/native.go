package entpgx

import (
	"context"
	stdsql "database/sql"
	"errors"
	"sync/atomic"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
)

// AfterCommit has f called when the transaction of the driver has committed, as [Driver.Committed]
// says. Over a pool it calls f at once.
func (d *Driver) AfterCommit(f func()) {
	if d.tx == nil {
		f()
		return
	}
	if d.after == nil {
		d.after = new([]func())
	}
	*d.after = append(*d.after, f)
}

// undo returns a function that takes back what AfterCommit gets from now on.
func (d *Driver) undo() func() {
	if d == nil {
		return func() {}
	}
	if d.after == nil {
		d.after = new([]func())
	}
	before := len(*d.after)
	return func() { *d.after = (*d.after)[:min(before, len(*d.after))] }
}

// Committed says to a driver made by [Within] that its transaction has committed, the outermost one
// if that is a savepoint. It calls the functions that AfterCommit got since the last call: they
// wake an engine for the work of an ent client on this driver. Call it after no rollback.
func (d *Driver) Committed() {
	if d.after == nil {
		return
	}
	all := *d.after
	*d.after = nil
	for _, f := range all {
		f()
	}
}

// Native is what a transaction of ent is to pgx.
type Native struct {
	// Tx is the transaction, or the savepoint, in which its statements run.
	Tx pgx.Tx
	// Outer is the driver made by [Within] that set the savepoint. It is nil if the Commit of Tx is
	// the outermost.
	Outer *Driver
}

// NativeOf returns what a transaction of ent is to pgx, also below wrappers: a dialect.Tx, or the
// *Tx of a client that was generated with the feature sql/execquery. It returns false if the
// transaction is none of a [Driver]. It sends nothing. A wrapper that this package does not know
// sees one query, "SELECT 1", with a context that has ended: a trace may show it as failed. If the
// wrapper does not pass it on with that context, NativeOf returns false.
func NativeOf(tx any) (Native, bool) {
	switch tx := tx.(type) {
	case *Tx:
		return tx.native, true
	case *dialect.DebugTx:
		return NativeOf(tx.Tx)
	case nil, *entsql.Tx, *stdsql.Tx:
		return Native{}, false
	case dialect.ExecQuerier:
		return ask(func(ctx context.Context) error {
			var found entsql.Rows
			err := tx.Query(ctx, question, []any{}, &found)
			if found.ColumnScanner == nil {
				return err
			}
			return errors.Join(err, found.Close())
		})
	case interface {
		QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error)
	}:
		return ask(func(ctx context.Context) error {
			found, err := tx.QueryContext(ctx, question) //nolint:rowserrcheck // their number does not count
			if err == nil {
				defer found.Close()
			}
			return err
		})
	}
	return Native{}, false
}

// question is a query for drivers other than this package's, which send it if they pass over that
// its context has ended.
const question = "SELECT 1"

var errAsked = errors.New("this query only asked for the transaction of pgx")

type askingKey struct{}

// ask sends a query whose context asks the driver below for its transaction. The context has ended:
// database/sql returns before it sends anything. A wrapper may return before the driver answers.
func ask(send func(context.Context) error) (Native, bool) {
	var answer atomic.Pointer[Native]
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), askingKey{}, &answer))
	cancel()
	err := send(ctx)
	n := answer.Load()
	if err == nil || n == nil || n.Tx == nil {
		return Native{}, false
	}
	return *n, true
}

// asked answers a query of [NativeOf].
func (q queries) asked(ctx context.Context) bool {
	answer, ok := ctx.Value(askingKey{}).(*atomic.Pointer[Native])
	if ok {
		answer.Store(&q.native)
	}
	return ok
}
