// Transfers shows a partition key: transfers of one account run one after the other, in order, in
// any process. Transfers of different accounts run side by side.
//
//	go run ./examples/transfers
//
// Each transfer reads a balance, takes its time and writes the balance back. Two of one account at
// a time would lose money, and the program would count them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
	"github.com/gendurable/gendurable/fsm"
)

const accounts, transfersEach = 20, 25

// Transfer is an amount that goes to an account, the Number-th of that account.
type Transfer struct {
	Account int   `json:"account"`
	Number  int   `json:"number"`
	Cents   int64 `json:"cents"`
}

// Book ends with the account's new balance.
var Book = fsm.Declare[Transfer, int64]("account.transfer")

const tables = `create table account (id int primary key, balance bigint not null default 0);
	create table booking (key uuid primary key, account int not null, number int not null, id bigint generated always as identity)`

type bank struct {
	db       *pgxpool.Pool
	running  [accounts + 1]atomic.Int32 // transfers of each account in this process
	overlaps atomic.Int32
}

// book adds to the balance without any lock: the partition key is the lock. A transfer that runs
// again, after a crash, finds its booking and changes nothing.
func (b *bank) book(ctx context.Context, t Transfer) (balance int64, err error) {
	if b.running[t.Account].Add(1) > 1 {
		b.overlaps.Add(1)
	}
	defer b.running[t.Account].Add(-1)
	if err := b.db.QueryRow(ctx, `select balance from account where id = $1`, t.Account).Scan(&balance); err != nil {
		return 0, fmt.Errorf("read account %d: %w", t.Account, err)
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(2 * time.Millisecond):
	}
	info, _ := fsm.InfoFrom(ctx)
	err = pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `insert into booking (key, account, number) values ($1, $2, $3) on conflict do nothing`,
			info.IdempotencyKey(), t.Account, t.Number)
		if err != nil {
			return err
		}
		balance += t.Cents * tag.RowsAffected() // nothing, if it was booked before
		_, err = tx.Exec(ctx, `update account set balance = $2 where id = $1`, t.Account, balance)
		return err
	})
	return balance, err
}

func main() { run.Main("gendurable_transfers", transfer) }

func transfer(ctx context.Context, out io.Writer, db *run.Database) error {
	if _, err := db.Pool.Exec(ctx, tables); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	if _, err := db.Pool.Exec(ctx, `insert into account (id) select generate_series(1, $1::int)`, accounts); err != nil {
		return fmt.Errorf("open the accounts: %w", err)
	}
	b := &bank{db: db.Pool}
	config := engine.Config{
		Pool:     db.Pool,
		Schema:   db.Schema,
		Machines: []fsm.Definition{Book.Job(b.book)},
		Queues:   map[string]engine.Queue{"default": {Concurrency: 16}},
	}
	// Two engines, as two processes would be: they know of each other through the database only.
	first, err := engine.New(config)
	if err != nil {
		return err
	}
	second, err := engine.New(config)
	if err != nil {
		return err
	}
	return run.While(ctx, first, func(ctx context.Context) error {
		return run.While(ctx, second, func(ctx context.Context) error { return insertAndWait(ctx, out, first, b) })
	})
}

func insertAndWait(ctx context.Context, out io.Writer, eng *engine.Engine, b *bank) error {
	var specs []fsm.Spec
	for number := range transfersEach {
		for account := 1; account <= accounts; account++ {
			t := Transfer{Account: account, Number: number, Cents: int64(100*account + number)}
			specs = append(specs, Book.New(t).PartitionKey(fmt.Sprintf("account:%d", account)))
		}
	}
	began := time.Now()
	inserted, err := eng.InsertMany(ctx, specs)
	if err != nil {
		return err
	}
	for _, i := range inserted {
		if _, err := Book.Wait(ctx, eng, i.ID); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d transfers of %d accounts in %v\n", len(specs), accounts, time.Since(began).Round(time.Millisecond))
	return b.verify(ctx, out)
}

func (b *bank) verify(ctx context.Context, out io.Writer) error {
	var wrong, disordered int
	err := b.db.QueryRow(ctx, `select
		(select count(*) from account where balance <> $1 * 100 * id + $1 * ($1 - 1) / 2),
		(select count(*) from (select number, lag(number) over (partition by account order by id) as before from booking) b where number <= before)`,
		transfersEach).Scan(&wrong, &disordered)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	overlaps := int(b.overlaps.Load())
	fmt.Fprintf(out, "wrong balances: %d, at the same time: %d, out of order: %d\n", wrong, overlaps, disordered)
	if wrong+overlaps+disordered > 0 {
		return errors.New("the accounts are not as they should be")
	}
	return nil
}
