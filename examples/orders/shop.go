package orders

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

var (
	//go:embed data/orders.csv
	ordersCSV []byte
	//go:embed data/payments.csv
	paymentsCSV []byte
)

// tables of the shop, beside the engine's. shop_order and payment hold the CSV files; the rest is
// what happened.
const tables = `
create table if not exists shop_order (
	id bigint primary key, placed_ms int not null, customer text not null, email text not null,
	item text not null, quantity int not null, cents bigint not null
);
create table if not exists payment ( -- one delivery of the payment provider; two of the same event are the same payment
	line int primary key, event text not null, order_id bigint not null, cents bigint not null, sent_ms int not null,
	answer int, -- the HTTP status that settled it
	too_early int not null default 0 -- tries before the order existed
);
create table if not exists received ( -- payments that the shop has accepted
	event text primary key, order_id bigint not null, cents bigint not null, deliveries int not null default 1
);
create table if not exists effect ( -- in the world outside
	key uuid primary key, name text not null, order_id bigint not null, cents bigint not null, token bigint not null,
	calls int not null default 1, first_at timestamptz not null default clock_timestamp(),
	last_at timestamptz not null default clock_timestamp()
);
create table if not exists worker ( -- one start of a process; identity is what the engine calls it in locked_by
	start text primary key, name text not null, identity text not null, stale bigint not null default 0
);
create table if not exists fault (
	kind text primary key, worker text not null, at timestamptz not null, over_at timestamptz
);
create table if not exists interrupted ( -- what the worker of a fault had claimed at that moment
	kind text not null, id bigint not null, token bigint not null, retaken_at timestamptz, primary key (kind, id)
)`

// setUp makes the tables and loads the first so many orders of the CSV files, with their payments.
// Tables of an earlier run stay as they are, but for a fault that the run's end cut short.
func setUp(ctx context.Context, db *pgxpool.Pool, orders int) (resumed bool, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, tables); err != nil {
			return fmt.Errorf("make the shop's tables: %w", err)
		}
		var loaded int
		if err := tx.QueryRow(ctx, `select count(*) from shop_order`).Scan(&loaded); err != nil {
			return fmt.Errorf("count the orders: %w", err)
		}
		if resumed = loaded > 0; resumed {
			const forget = `with cut as (delete from fault where over_at is null returning kind)
				delete from interrupted where kind in (select kind from cut)`
			_, err := tx.Exec(ctx, forget)
			return err
		}
		columns := []string{"id", "placed_ms", "customer", "email", "item", "quantity", "cents"}
		if err := load(ctx, tx, "shop_order", columns, bytes.NewReader(ordersCSV), false); err != nil {
			return err
		}
		columns = []string{"line", "event", "order_id", "cents", "sent_ms"}
		if err := load(ctx, tx, "payment", columns, bytes.NewReader(paymentsCSV), true); err != nil {
			return err
		}
		const shorten = `with gone as (delete from shop_order where id not in (select id from shop_order order by id limit $1) returning id)
			delete from payment where order_id in (select id from gone)`
		if _, err := tx.Exec(ctx, shorten, orders); err != nil {
			return fmt.Errorf("take the first %d orders: %w", orders, err)
		}
		return nil
	})
	return resumed, err
}

// load copies a CSV file into a table. Numbered ones get the number of the line as their first
// column.
func load(ctx context.Context, tx pgx.Tx, table string, columns []string, file io.Reader, numbered bool) error {
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return fmt.Errorf("read the CSV of table %s: %w", table, err)
	}
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	for i, record := range records[1:] {
		if numbered {
			record = append([]string{strconv.Itoa(i + 2)}, record...)
		}
		if err := w.Write(record); err != nil {
			return fmt.Errorf("write line %d of table %s: %w", i+2, table, err)
		}
	}
	w.Flush()
	query := `copy ` + table + ` (` + strings.Join(columns, ", ") + `) from stdin (format csv)`
	if _, err := tx.Conn().PgConn().CopyFrom(ctx, &out, query); err != nil {
		return fmt.Errorf("load table %s: %w", table, err)
	}
	return nil
}

// placing is how many orders one insert takes: a shop's come in small batches.
const placing = 25

// place inserts the orders that have none yet, each at its time. The key makes that repeatable: an
// order that was placed before, whatever became of it, is a duplicate and no error.
func place(ctx context.Context, db *pgxpool.Pool, eng *engine.Engine, opened clock) error {
	rows, err := db.Query(ctx, `select id, placed_ms, email, item, quantity, cents from shop_order o
		where not exists (select from gen_durable where correlation_key = 'order:' || o.id) order by id`)
	if err != nil {
		return fmt.Errorf("read the orders to place: %w", err)
	}
	type placed struct {
		ID       int64
		PlacedMS int
		Email    string
		Item     string
		Quantity int
		Cents    int64
	}
	waiting, err := pgx.CollectRows(rows, pgx.RowToStructByPos[placed])
	if err != nil {
		return fmt.Errorf("read the orders to place: %w", err)
	}
	for len(waiting) > 0 {
		batch := waiting[:min(placing, len(waiting))]
		waiting = waiting[len(batch):]
		if err := opened.wait(ctx, batch[len(batch)-1].PlacedMS); err != nil {
			return err
		}
		specs := make([]fsm.Spec, 0, len(batch))
		for _, o := range batch {
			order := Order{ID: o.ID, Email: o.Email, Item: o.Item, Quantity: o.Quantity, Cents: o.Cents}
			specs = append(specs, Checkout.New(order).Key(Key(o.ID)).Scope(fsm.ScopeAll))
		}
		if _, err := eng.InsertMany(ctx, specs); err != nil {
			return fmt.Errorf("place orders from %d: %w", batch[0].ID, err)
		}
	}
	return nil
}

// clock replays the offsets of the CSV files. A run that resumes skips the part of the day that was
// replayed before.
type clock struct{ opened time.Time }

func openShop(ctx context.Context, db *pgxpool.Pool) (clock, error) {
	var skip *int
	err := db.QueryRow(ctx, `select least(
		(select min(placed_ms) from shop_order o where not exists (select from gen_durable where correlation_key = 'order:' || o.id)),
		(select min(sent_ms) from payment where answer is null))`).Scan(&skip)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return clock{}, fmt.Errorf("find where to go on: %w", err)
	}
	opened := time.Now()
	if skip != nil {
		opened = opened.Add(-time.Duration(*skip) * time.Millisecond)
	}
	return clock{opened}, nil
}

func (c clock) wait(ctx context.Context, ms int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(c.opened.Add(time.Duration(ms) * time.Millisecond))):
		return nil
	}
}
