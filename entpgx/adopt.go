package entpgx

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Adopt makes a transaction of pgx a transaction of an ent driver, with everything that surrounds
// the driver: its [Driver.Around], ent's debug mode, and the wrappers of a host. It sends nothing.
// Wrappers stay if they pass on their context to the [Driver] below them; around database/sql they
// do not apply, since a transaction of pgx is none of that driver's.
//
// Rollback of the result rolls tx back. Commit commits tx, and fails unless this is known to be the
// outermost commit: a savepoint's is not, and a wrapper of a transaction may say so by a method
// Outermost, which returns true. A client that is generated with package entity/extension calls
// Adopt: see the method Within of the client.
func Adopt(ctx context.Context, driver dialect.Driver, tx pgx.Tx) (dialect.Tx, error) {
	if tx == nil {
		return nil, errors.New("adopt a transaction of pgx: it is nil")
	}
	switch d := driver.(type) {
	case *Driver:
		return d.adopt(ctx, tx), nil
	case *dialect.DebugDriver:
		outer := *d
		outer.Driver = adopting{d.Driver, tx}
		return outer.Tx(ctx)
	case nil, *entsql.Driver:
		return (&Driver{}).adopt(ctx, tx), nil
	}
	if !stands(driver) {
		return (&Driver{}).adopt(ctx, tx), nil
	}
	a := &adoption{tx: tx}
	out, err := driver.Tx(context.WithValue(ctx, adoptionKey{}, a))
	switch {
	case err != nil:
		return nil, fmt.Errorf("adopt a transaction of pgx: %w", err)
	case !a.done:
		// A wrapper has kept the context to itself, so the driver has begun another transaction.
		return (&Driver{}).adopt(ctx, tx), out.Rollback()
	}
	return out, nil
}

// adopting is the driver below ent's debug mode while that makes its transaction.
type adopting struct {
	dialect.Driver
	tx pgx.Tx
}

// Tx adopts the transaction.
func (a adopting) Tx(ctx context.Context) (dialect.Tx, error) { return Adopt(ctx, a.Driver, a.tx) }

// adoption asks a driver below wrappers for a transaction.
type adoption struct {
	tx   pgx.Tx
	done bool
}

type adoptionKey struct{}

// adopt makes tx a transaction of this driver.
func (d *Driver) adopt(ctx context.Context, tx pgx.Tx) *Tx {
	return &Tx{
		queries: queries{db: inTx{tx}, around: d.around, native: Native{Tx: tx}},
		tx:      tx,
		commit: func() error {
			if !outermost(tx) {
				return fmt.Errorf("%w: it is a %T", ErrNotOutermost, tx)
			}
			return d.Surround(ctx, tx.Commit, Stmt{Name: "commit", SQL: "COMMIT"})
		},
		rollback: func() error {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			return d.Surround(ctx, tx.Rollback, Stmt{Name: "rollback", SQL: "ROLLBACK"})
		},
	}
}

// ErrNotOutermost is returned by the Commit of a transaction that [Adopt] made, if its commit is
// not known to be the outermost. Nothing has been committed.
var ErrNotOutermost = errors.New("commit an adopted transaction of pgx: its commit is not known to be the outermost, " +
	"so what follows a commit would come too early: commit by CommitBy of the client's Tx, with a function that commits the outermost transaction")

// outermost reports whether the Commit of a transaction is known to be the outermost. The types of
// pgx itself, but for the pool's, are not exported.
func outermost(tx pgx.Tx) bool {
	switch tx := tx.(type) {
	case *pgxpool.Tx:
		return true
	case interface{ Outermost() bool }:
		return tx.Outermost()
	}
	return fmt.Sprintf("%T", tx) == "*pgx.dbTx"
}

// stands reports whether a driver stands on one of this package, below wrappers.
func stands(driver dialect.Driver) bool {
	var answer atomic.Pointer[Native]
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), askingKey{}, &answer))
	cancel()
	var found entsql.Rows
	_ = driver.Query(ctx, question, []any{}, &found)
	if found.ColumnScanner != nil {
		_ = found.Close()
	}
	return answer.Load() != nil
}
