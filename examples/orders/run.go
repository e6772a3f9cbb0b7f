package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/examples/internal/run"
)

// Bounds of Options.Orders.
const (
	MinOrders = 100   // it takes so many to have enough in hand when the faults come
	MaxOrders = 3_000 // the CSV file has no more
)

// Options of [Run]. Zero fields have the defaults given here.
type Options struct {
	URL    string // of the database
	Schema string // of the engine, migrated
	Shop   string // schema of the shop's own tables, which exists

	Orders      int           // MaxOrders; at least MinOrders
	Concurrency int           // of each worker; a slot for 300 orders, at least 2, so that there is always something in hand
	Latency     time.Duration // of the world outside; 40 ms
	PayWithin   time.Duration // 25 s, well over the time that any payment in the CSV file takes
	Within      time.Duration // the whole run; 3 min
	Progress    *run.Progress // required
}

// WithDefaults returns a copy as Run will use it.
func (o Options) WithDefaults() Options {
	o.Orders = cmp.Or(o.Orders, MaxOrders)
	o.Concurrency = cmp.Or(o.Concurrency, max(2, o.Orders/300))
	o.Latency = cmp.Or(o.Latency, 40*time.Millisecond)
	o.PayWithin = cmp.Or(o.PayWithin, 25*time.Second)
	o.Within = cmp.Or(o.Within, 3*time.Minute)
	return o
}

// workers are the names of the worker processes: the second is killed, the third stalls.
var workers = []string{"worker-1", "worker-2", "worker-3"}

// Run takes all orders through the shop, in worker processes of which it kills one and stalls
// another, prints the report and returns an error if anything is not as it must be. On the tables
// of a run that was interrupted it goes on where that one was.
func Run(ctx context.Context, o Options) error {
	o = o.WithDefaults()
	if o.Orders < MinOrders || o.Orders > MaxOrders {
		return fmt.Errorf("%d orders: want %d to %d", o.Orders, MinOrders, MaxOrders)
	}
	searchPath := pgx.Identifier{o.Shop}.Sanitize() + "," + pgx.Identifier{o.Schema}.Sanitize()
	db, err := run.Connect(ctx, o.URL, "orders", searchPath)
	if err != nil {
		return err
	}
	defer db.Close()
	resumed, err := setUp(ctx, db, o.Orders)
	if err != nil {
		return err
	}
	started := time.Now()
	f := &fleet{db: db, running: map[string]*process{}, settings: settings{
		URL: o.URL, SearchPath: searchPath, Schema: o.Schema, Concurrency: o.Concurrency, Latency: o.Latency, PayWithin: o.PayWithin,
	}}
	err = open(ctx, o, db, f, resumed)
	if err = errors.Join(err, f.stop()); err != nil {
		return err
	}
	return report(ctx, db, o.Progress, time.Since(started), resumed)
}

// open runs the shop until all orders have ended.
func open(ctx context.Context, o Options, db *pgxpool.Pool, f *fleet, resumed bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Within, fmt.Errorf("orders were still open after %v", o.Within))
	defer cancel()
	// The shop itself needs no queues: it inserts and signals.
	eng, err := engine.New(engine.Config{Pool: db, Schema: o.Schema})
	if err != nil {
		return err
	}
	url, stopServer, err := listen(ctx, &payments{eng: eng, db: db})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = stopServer(ctx)
	}()
	starts := make([]func(context.Context) error, 0, len(workers))
	for _, name := range workers {
		starts = append(starts, func(ctx context.Context) error { return f.start(ctx, name) })
	}
	if err := run.Together(ctx, starts...); err != nil {
		return err
	}
	o.Progress.Say("%d worker processes are up; payments are taken at %s", len(workers), url)
	opened, err := openShop(ctx, db)
	if err != nil {
		return err
	}
	disturb := &faults{db: db, fleet: f, progress: o.Progress, optional: resumed}
	pays := &provider{db: db, url: url}
	return run.Together(ctx,
		func(ctx context.Context) error { return place(ctx, db, eng, opened) },
		func(ctx context.Context) error { return pays.deliver(ctx, opened) },
		func(ctx context.Context) error { return disturb.kill(ctx, workers[1], 0.15) },
		func(ctx context.Context) error { return disturb.stall(ctx, workers[2], 0.4) },
		func(ctx context.Context) error { return watch(ctx, db, f, o.Progress) },
	)
}

// watch shows how far the orders are, until all have ended.
func watch(ctx context.Context, db *pgxpool.Pool, f *fleet, progress *run.Progress) error {
	const look = `select (select count(*) from shop_order), (select count(*) from received), count(*),
			count(*) filter (where status = 'awaiting_signal'), count(*) filter (where status in ('runnable', 'executing')),
			count(*) filter (where result->>'fate' = 'shipped'), count(*) filter (where result->>'fate' = 'refunded'),
			count(*) filter (where result->>'fate' = 'expired'), count(*) filter (where status in ('done', 'failed'))
		from gen_durable where fsm = 'checkout'`
	for {
		var all, paid, placed, waiting, running, shipped, refunded, expired, ended int
		if err := db.QueryRow(ctx, look).Scan(&all, &paid, &placed, &waiting, &running, &shipped, &refunded, &expired, &ended); err != nil {
			return fmt.Errorf("look at the orders: %w", err)
		}
		progress.Status("orders %s/%s  paid %s  waiting %s  in work %s  | shipped %s  refunded %s  expired %s", run.Count(placed), run.Count(all),
			run.Count(paid), run.Count(waiting), run.Count(running), run.Count(shipped), run.Count(refunded), run.Count(expired))
		if ended == all {
			return nil
		}
		if err := f.died(); err != nil {
			return err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}
