package entpgx_test

import (
	"context"
	stdsql "database/sql"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/entpgx"
)

// unknown hides what it wraps, but for ent's interface.
type unknown struct{ dialect.Tx }

// wary passes nothing on whose context has ended.
type wary struct{ unknown }

func (w wary) Query(ctx context.Context, query string, args, v any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.unknown.Query(ctx, query, args, v)
}

// hasty runs queries beside, and leaves them to themselves when the context ends.
type hasty struct {
	unknown
	left *sync.WaitGroup
}

func (h hasty) Query(ctx context.Context, query string, args, v any) error {
	var rows entsql.Rows
	done := make(chan error, 1)
	h.left.Go(func() { done <- h.unknown.Query(ctx, query, args, &rows) })
	select {
	case err := <-done:
		*v.(*entsql.Rows) = rows
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A wrapper that answers by itself, before the driver does or in its place, hides the transaction.
func TestNativeOfBelowWrappersThatLookAtTheContext(t *testing.T) {
	t.Parallel()
	tx, err := newDriver(t, item, pgx.QueryExecModeCacheStatement).Tx(t.Context())
	require.NoError(t, err)
	_, ok := entpgx.NativeOf(wary{unknown{tx}})
	require.False(t, ok)
	var left sync.WaitGroup
	for range 200 {
		if found, ok := entpgx.NativeOf(hasty{unknown{tx}, &left}); ok {
			require.Equal(t, entpgx.Native{Tx: tx.(*entpgx.Tx).Pgx()}, found)
		}
	}
	left.Wait()
	require.Equal(t, 0, count(t, tx), "and the transaction goes on")
	require.NoError(t, tx.Rollback())
}

// plainSQL is the *Tx of a client with the feature sql/execquery, as far as it counts.
type plainSQL struct{ tx dialect.Tx }

func (p plainSQL) QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error) {
	return p.tx.(interface {
		QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error)
	}).QueryContext(ctx, query, args...)
}

// The transaction of pgx is found below wrappers, and nothing is sent to find it.
func TestNativeOf(t *testing.T) {
	t.Parallel()
	sent := 0
	driver := newDriver(t, item, pgx.QueryExecModeCacheStatement).Around(func(ctx context.Context, _ []entpgx.Stmt, send func(context.Context) error) error {
		sent++
		return send(ctx)
	})
	debug := func(tx dialect.Tx) dialect.Tx {
		wrapped, err := dialect.DebugWithContext(begun{tx: tx}, func(context.Context, ...any) {}).Tx(t.Context())
		require.NoError(t, err)
		return wrapped
	}
	ways := map[string]func(dialect.Tx) any{
		"itself":         func(tx dialect.Tx) any { return tx },
		"debug":          func(tx dialect.Tx) any { return debug(tx) },
		"unknown":        func(tx dialect.Tx) any { return unknown{tx} },
		"debug, unknown": func(tx dialect.Tx) any { return debug(unknown{tx}) },
		"plain SQL":      func(tx dialect.Tx) any { return plainSQL{tx} },
	}
	tx, err := driver.Tx(t.Context())
	require.NoError(t, err)
	native := tx.(*entpgx.Tx).Pgx()
	inside := driver.Within(native)
	savepoint, err := inside.Tx(t.Context())
	require.NoError(t, err)
	sent = 0
	for name, wrap := range ways {
		found, ok := entpgx.NativeOf(wrap(tx))
		require.True(t, ok, name)
		require.Equal(t, entpgx.Native{Tx: native}, found, name)
		found, ok = entpgx.NativeOf(wrap(savepoint))
		require.True(t, ok, name)
		require.Equal(t, entpgx.Native{Tx: savepoint.(*entpgx.Tx).Pgx(), Outer: inside}, found, name)
	}
	found, ok := entpgx.NativeOf(dialect.NopTx(inside))
	require.True(t, ok)
	require.Equal(t, entpgx.Native{Tx: native, Outer: inside}, found)
	_, ok = entpgx.NativeOf(dialect.NopTx(driver))
	require.False(t, ok, "it is in no transaction")
	_, ok = entpgx.NativeOf(nil)
	require.False(t, ok)
	require.Zero(t, sent)
	require.Equal(t, 0, count(t, savepoint), "and the transaction goes on")
	require.NoError(t, tx.Rollback())

	// Nor is a transaction of another driver touched.
	db := stdlib.OpenDBFromPool(driver.Pool())
	defer db.Close()
	foreign, err := entsql.OpenDB(dialect.Postgres, db).Tx(t.Context())
	require.NoError(t, err)
	for name, wrap := range ways {
		_, ok := entpgx.NativeOf(wrap(foreign))
		require.False(t, ok, name)
	}
	require.Equal(t, 0, count(t, foreign))
	require.NoError(t, foreign.Commit())
}

// begun is a driver whose transaction has begun.
type begun struct {
	dialect.Driver
	tx dialect.Tx
}

func (b begun) Tx(context.Context) (dialect.Tx, error) { return b.tx, nil }

// The functions of AfterCommit are called once, when the caller says that it has committed.
func TestAfterCommit(t *testing.T) {
	t.Parallel()
	driver := newDriver(t, item, pgx.QueryExecModeCacheStatement)
	calls := 0
	driver.AfterCommit(func() { calls++ })
	require.Equal(t, 1, calls, "over a pool nothing has to commit")
	driver.Committed()

	tx, err := driver.Pool().Begin(t.Context())
	require.NoError(t, err)
	within := entpgx.Within(tx)
	within.Committed()
	surrounded := within.Around(func(ctx context.Context, _ []entpgx.Stmt, send func(context.Context) error) error { return send(ctx) })
	within.AfterCommit(func() { calls++ })
	surrounded.AfterCommit(func() { calls++ })
	require.Equal(t, 1, calls)
	require.NoError(t, tx.Commit(t.Context()))
	within.Committed()
	require.Equal(t, 3, calls)
	surrounded.Committed()
	require.Equal(t, 3, calls)
}

// What AfterCommit got within a savepoint is not called if the driver rolls back to that savepoint.
func TestAfterCommitOfASavepoint(t *testing.T) {
	t.Parallel()
	tx, err := newDriver(t, item, pgx.QueryExecModeCacheStatement).Pool().Begin(t.Context())
	require.NoError(t, err)
	within := entpgx.Within(tx)
	var calls []string
	note := func(of string) { within.AfterCommit(func() { calls = append(calls, of) }) }
	for _, of := range []string{"first", "second"} {
		outer, err := within.Tx(t.Context())
		require.NoError(t, err)
		note(of + ", undone")
		inner, err := within.Tx(t.Context())
		require.NoError(t, err)
		note(of + ", undone with the outer one")
		require.NoError(t, inner.Commit())
		require.NoError(t, outer.Rollback())
		kept, err := within.Tx(t.Context())
		require.NoError(t, err)
		note(of + ", kept")
		require.NoError(t, kept.Commit())
		require.ErrorIs(t, kept.Rollback(), pgx.ErrTxClosed)
	}
	require.NoError(t, tx.Commit(t.Context()))
	within.Committed()
	require.Equal(t, []string{"first, kept", "second, kept"}, calls)
}
