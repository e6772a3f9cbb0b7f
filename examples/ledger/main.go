// Ledger shows transactions: one transaction of the host inserts orders and their machines, and
// steps commit their bookings together with their outcomes.
//
//	go run ./examples/ledger
//
// The host rolls back every third order, which leaves no machine behind. Each of the others moves
// money between two accounts and signals the day's statement, which starts with the first booking.
// Bookings deadlock with each other, and connections are killed all the while. Each booking takes
// effect once all the same, and the program counts that.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/ent/instance"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

const accounts, orders = 20, 150

// Order moves cents from one account to another.
type Order struct {
	ID    int64 `json:"id"`
	From  int   `json:"from"`
	To    int   `json:"to"`
	Cents int64 `json:"cents"`
}

// Move carries an order out. Day counts what was booked, and ends at the last.
var (
	Move   = fsm.Declare[Order, fsm.None]("move")
	Day    = fsm.Declare[int, int]("day")
	Booked = fsm.DeclareSignal[int64]("booked")
)

const today = fsm.Key("day:today")

const tables = `create table account (id int primary key, cents bigint not null default 0);
	create table "order" (id bigint primary key, cents bigint not null);
	create table booking (order_id bigint not null)`

// move is one step: the transaction does what several effects would else need idempotency keys for.
func move(_ context.Context, v *fsm.Visit[Order, fsm.None]) (fsm.Outcome, error) {
	o := v.State
	return engine.InTx(func(ctx context.Context, tx pgx.Tx) (fsm.Outcome, error) {
		for account, cents := range map[int]int64{o.From: -o.Cents, o.To: o.Cents} { // in any order: some will deadlock
			if _, err := tx.Exec(ctx, `update account set cents = cents + $2 where id = $1`, account, cents); err != nil {
				return nil, err
			}
		}
		if _, err := tx.Exec(ctx, `insert into booking values ($1)`, o.ID); err != nil {
			return nil, err
		}
		_, err := engine.FromContext(ctx).WithPgx(tx).SignalOrInsert(ctx, Day.New(0).Key(today).Scope(fsm.ScopeAll), Booked.With(o.ID))
		return v.Done(fsm.None{}), err
	}), nil
}

// count adds up what has been booked since it looked last: Next consumes it.
func count(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
	booked, err := Booked.All(v)
	if err != nil {
		return nil, err
	}
	return v.Next("wait", v.State+len(booked)), nil
}

func wait(_ context.Context, v *fsm.Visit[int, int]) (fsm.Outcome, error) {
	if v.State == kept() {
		return v.Done(v.State).Unless("count", Booked), nil
	}
	return v.Await("count", v.State, Booked), nil
}

// kept is how many orders the host does not roll back.
func kept() int { return orders - orders/3 }

func main() { run.Main("gendurable_ledger", ledger) }

func ledger(ctx context.Context, out io.Writer, db *run.Database) error {
	if _, err := db.Pool.Exec(ctx, tables); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	if _, err := db.Pool.Exec(ctx, `insert into account (id) select generate_series(0, $1::int - 1)`, accounts); err != nil {
		return fmt.Errorf("open the accounts: %w", err)
	}
	eng, err := engine.New(engine.Config{
		Pool: db.Pool, Schema: db.Schema,
		Machines: []fsm.Definition{
			Move.Define(fsm.Step("start", move).To()),
			Day.Define(fsm.Step("start", wait).To("count"), fsm.Step("count", count).To("wait"), fsm.Step("wait", wait).To("count")),
		},
		Queues: map[string]engine.Queue{"default": {Concurrency: 8}},
	})
	if err != nil {
		return err
	}
	return run.While(ctx, eng, func(ctx context.Context) error {
		for id := range int64(orders) {
			from := int(id) % accounts
			o := Order{ID: id, From: from, To: (from + 1 + int(id)%(accounts-1)) % accounts, Cents: 1 + id}
			if err := place(ctx, db, eng, o); err != nil {
				return fmt.Errorf("place order %d: %w", id, err)
			}
			if id%25 == 0 {
				if err := disturb(ctx, db); err != nil {
					return err
				}
			}
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return verify(ctx, out, db, eng)
	})
}

// place writes an order and its machine in one transaction, and thinks better of every third.
func place(ctx context.Context, db *run.Database, eng *engine.Engine, o Order) error {
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after the commit it does nothing
	if _, err := tx.Exec(ctx, `insert into "order" values ($1, $2)`, o.ID, o.Cents); err != nil {
		return err
	}
	durable := eng.WithPgx(tx)
	if _, err := durable.Insert(ctx, Move.New(o).Key(fsm.Key(fmt.Sprintf("order:%d", o.ID))).Scope(fsm.ScopeAll)); err != nil {
		return err
	}
	if o.ID%3 == 2 {
		return nil // rolled back
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	durable.Nudge()
	return nil
}

// disturb kills the session of a step that is in the middle of its transaction, if there is one.
func disturb(ctx context.Context, db *run.Database) error {
	_, err := db.Pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and pid <> pg_backend_pid() and query like 'update account%' limit $1`, 1+rand.IntN(2))
	if err != nil {
		return fmt.Errorf("disturb: %w", err)
	}
	return nil
}

func verify(ctx context.Context, out io.Writer, db *run.Database, eng *engine.Engine) error {
	// The day may not have begun: wait for its key to be taken.
	var booked int
	var err error
	for booked, err = Day.Wait(ctx, eng, today); errors.Is(err, engine.ErrNotFound); booked, err = Day.Wait(ctx, eng, today) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err != nil {
		return err
	}
	var placed, machines, bookings, once int
	var sum int64
	if err := db.Pool.QueryRow(ctx, `select (select count(*) from "order"), (select count(*) from booking), (select count(distinct order_id) from booking),
		(select sum(cents) from account)`).Scan(&placed, &bookings, &once, &sum); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if machines, err = eng.Ent().Instance.Query().Where(instance.Machine(Move.Name())).Count(ctx); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d orders, %d machines, %d bookings of %d orders, %d in the day's statement, balance %d\n", placed, machines, bookings, once, booked, sum)
	if placed != kept() || machines != kept() || bookings != kept() || once != kept() || booked != kept() || sum != 0 {
		return errors.New("the books do not add up")
	}
	return nil
}
