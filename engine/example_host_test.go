package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// The order and what carries it out are committed together.
func ExampleEngine_WithPgx() {
	var hostPool *pgxpool.Pool
	ctx := context.Background()
	place := func(ctx context.Context, o order) error {
		tx, err := hostPool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
		if _, err := tx.Exec(ctx, `insert into orders (id, cents) values ($1, $2)`, o.ID, o.Cents); err != nil {
			return err
		}
		durable := eng.WithPgx(tx)
		if _, err := durable.Insert(ctx, checkout.New(o).Key(orderKey(o.ID))); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		durable.Nudge() // or the next poll finds it
		return nil
	}
	fmt.Println(place(ctx, order{ID: 42, Cents: 4200}))
}

// Any *sql.Tx, whatever its driver, and the *Tx of an ent client with the feature sql/execquery.
func ExampleEngine_WithSQL() {
	var tx *sql.Tx
	ctx := context.Background()
	durable := eng.WithSQL(tx)
	_, err := durable.Signal(ctx, orderKey(42), received.With(payment{Cents: 4200}).DedupKey("evt-7"))
	if errors.Is(err, engine.ErrNoTarget) {
		err = nil // the transaction is usable still
	}
	if err == nil && tx.Commit() == nil {
		durable.Nudge()
	}
}

// Whoever comes first starts it: the signal is in the inbox either way.
func ExampleEngine_SignalOrInsert() {
	in, err := eng.SignalOrInsert(context.Background(), checkout.New(order{ID: 42}).Key(orderKey(42)),
		received.With(payment{Cents: 4200}).DedupKey("evt-7"))
	fmt.Println(in.ID, in.Duplicate, err)
}

// What went wrong before it failed.
func ExampleEngine_Errors() {
	list, err := eng.Errors(context.Background(), orderKey(42))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range list {
		switch e.Kind {
		case fsm.AttemptCrashed:
			fmt.Println(e.At, e.Step, "lost", e.Worker)
		case fsm.AttemptRetried, fsm.AttemptStopped, fsm.AttemptCancelled, fsm.AttemptOverdue:
			fmt.Println(e.At, e.Step, e.Attempt, e.Message)
		}
	}
}

// The booking takes effect once: it is committed together with the outcome, or not at all.
func ExampleInTx() {
	var noted = fsm.DeclareSignal[order]("noted")
	settle := func(_ context.Context, v *fsm.Visit[order, receipt]) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			if _, err := tx.Exec(ctx, `update account set cents = cents + $2 where id = $1`, v.State.ID, v.State.Cents); err != nil {
				return nil, err
			}
			if _, err := engine.FromContext(ctx).WithPgx(tx).Signal(ctx, fsm.Key("ledger"), noted.With(v.State)); err != nil {
				return nil, err
			}
			return v.Done(receipt{Order: v.State.ID, Paid: v.State.Cents}), nil
		}), nil
	}
	_ = checkout.Define(fsm.Step("start", settle).To())
}
