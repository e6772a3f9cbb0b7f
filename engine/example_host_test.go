package engine_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// The order and the instance that carries it out are committed together.
func ExampleEngine_WithPgx() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()
	if _, err := shop.pool.Exec(ctx, `create table orders (id bigint primary key, cents bigint)`); err != nil {
		fmt.Println(err)
		return
	}

	place := func(ctx context.Context, o order) error {
		tx, err := shop.pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // after the commit it does nothing
		if _, err := tx.Exec(ctx, `insert into orders (id, cents) values ($1, $2)`, o.ID, o.Cents); err != nil {
			return err
		}
		durable := shop.eng.WithPgx(tx)
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
	i, err := shop.eng.Get(ctx, orderKey(42))
	fmt.Println(i.Machine, err)
	// Output:
	// <nil>
	// checkout <nil>
}

// Any *sql.Tx, of any driver, and the *Tx of an ent client with the feature sql/execquery.
func ExampleEngine_WithSQL() {
	shop := openShop()
	defer shop.close()
	shop.place(42)
	ctx := context.Background()
	db := stdlib.OpenDBFromPool(shop.pool)
	defer db.Close()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	durable := shop.eng.WithSQL(tx)
	delivery, err := durable.Signal(ctx, orderKey(42), received.With(payment{Cents: 4200}).DedupKey("evt-7"))
	fmt.Println(delivery.Duplicate, err)
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
		return
	}
	durable.Nudge()
	paid, err := checkout.Wait(ctx, shop.eng, delivery.To)
	fmt.Println(paid.Paid, err)
	// Output:
	// false <nil>
	// 4200 <nil>
}

// The booking takes effect once: it is committed together with the outcome, or not at all.
func ExampleInTx() {
	booking := fsm.Declare[order, receipt]("booking")
	settle := func(_ context.Context, v *fsm.Visit[order, receipt]) (fsm.Outcome, error) {
		return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
			if _, err := tx.Exec(ctx, `insert into booked (id, cents) values ($1, $2)`, v.State.ID, v.State.Cents); err != nil {
				return nil, err
			}
			paid := received.With(payment{Cents: v.State.Cents})
			if _, err := engine.FromContext(ctx).WithPgx(tx).Signal(ctx, orderKey(v.State.ID), paid); err != nil {
				return nil, err
			}
			return v.Done(receipt{Order: v.State.ID, Paid: v.State.Cents}), nil
		}), nil
	}
	shop := openShop(func(c *engine.Config) {
		c.Machines = append(c.Machines, booking.Define(fsm.Step("start", settle).To()))
	})
	defer shop.close()
	ctx := context.Background()
	if _, err := shop.pool.Exec(ctx, `create table booked (id bigint primary key, cents bigint)`); err != nil {
		fmt.Println(err)
		return
	}
	ordered := shop.place(42)
	if _, err := shop.eng.Insert(ctx, booking.New(order{ID: 42, Cents: 4200})); err != nil {
		fmt.Println(err)
		return
	}
	paid, err := checkout.Wait(ctx, shop.eng, ordered)
	fmt.Println("paid:", paid.Paid, err)
	var booked int64
	err = shop.pool.QueryRow(ctx, `select sum(cents) from booked`).Scan(&booked)
	fmt.Println("booked:", booked, err)
	// Output:
	// paid: 4200 <nil>
	// booked: 4200 <nil>
}
