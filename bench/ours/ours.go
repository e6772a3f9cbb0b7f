// Package ours runs gendurable as a host would: by engine.New with its defaults, except the
// settings that a trial is about.
package ours

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/migrate"
)

// Order is the state of all instances. The peers' jobs carry it, too.
type Order struct {
	N     int    `json:"n"`
	Order string `json:"order"`
	Items []int  `json:"items"`
	Note  string `json:"note"`
}

// Result is the result of all instances.
type Result struct {
	OK bool `json:"ok"`
}

// NewOrder returns the n-th order.
func NewOrder(n int) Order {
	return Order{N: n, Order: fmt.Sprintf("ord_%010d", n), Items: []int{1, 2, 3}, Note: "abcdefgh"}
}

// Options are the settings that differ from the engine's defaults.
type Options struct {
	Concurrency int // of queue default; 0: the engine's default
	Conns       int // of the pool; 0: pgxpool's default
	Machines    []fsm.Definition
	Change      func(*engine.Config)         // makes other changes
	Pool        func(config *pgxpool.Config) // changes the pool's configuration
}

// Engine is a running engine, with its pool.
type Engine struct {
	*engine.Engine
	pool *pgxpool.Pool
}

// Logger returns the logger of all contenders, which logs errors only.
func Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// Migrate makes the tables.
func Migrate(ctx context.Context, db *lab.Database) error {
	return MigrateSchema(ctx, db, engine.DefaultSchema)
}

// MigrateSchema makes the tables in a schema of this name.
func MigrateSchema(ctx context.Context, db *lab.Database, schema string) error {
	pool, err := db.Pool(ctx, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = (migrate.Migrator{Pool: pool, Schema: schema}).Up(ctx)
	return err
}

// Clear empties the tables.
func Clear(ctx context.Context, db *lab.Database) error {
	return db.Exec(ctx, "TRUNCATE gendurable.gen_durable, gendurable.signals, gendurable.history, gendurable.gates, gendurable.gate_keys, gendurable.edges RESTART IDENTITY")
}

// SetGates sets gates. The next engine knows them when it starts.
func SetGates(ctx context.Context, db *lab.Database, gates ...engine.Gate) error {
	if len(gates) == 0 {
		return nil
	}
	e, err := Client(ctx, db, nil)
	if err != nil {
		return err
	}
	defer e.pool.Close()
	for _, g := range gates {
		if _, err := e.Admin().SetGate(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// Settle brings the table into the state in which autovacuum keeps it in a running system.
func Settle(ctx context.Context, db *lab.Database) error {
	return db.Exec(ctx, "VACUUM (ANALYZE) gendurable.gen_durable", "VACUUM (ANALYZE) gendurable.signals")
}

// Client makes an engine that only inserts and signals. change changes its defaults; nil keeps
// them.
func Client(ctx context.Context, db *lab.Database, change func(*engine.Config)) (*Engine, error) {
	pool, err := db.Pool(ctx, 0)
	if err != nil {
		return nil, err
	}
	c := engine.Config{Pool: pool, Logger: Logger()}
	if change != nil {
		change(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Engine{Engine: e, pool: pool}, nil
}

// New makes an engine that works on queue default, and does not start it.
func New(ctx context.Context, db *lab.Database, o Options) (*Engine, error) {
	var configure []func(*pgxpool.Config)
	if o.Pool != nil {
		configure = append(configure, o.Pool)
	}
	pool, err := db.Pool(ctx, o.Conns, configure...)
	if err != nil {
		return nil, err
	}
	return OverPool(pool, o)
}

// OverPool makes an engine on a pool, which it then owns.
func OverPool(pool *pgxpool.Pool, o Options) (*Engine, error) {
	c := engine.Config{Pool: pool, Machines: o.Machines, Queues: map[string]engine.Queue{"default": {Concurrency: o.Concurrency}}, Logger: Logger()}
	if o.Change != nil {
		o.Change(&c)
	}
	e, err := engine.New(c)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Engine{Engine: e, pool: pool}, nil
}

// Start makes an engine and starts it.
func Start(ctx context.Context, db *lab.Database, o Options) (*Engine, error) {
	e, err := New(ctx, db, o)
	if err != nil {
		return nil, err
	}
	if err := e.Start(ctx); err != nil {
		e.pool.Close()
		return nil, err
	}
	return e, nil
}

// Close stops the engine and closes its pool.
func (e *Engine) Close(ctx context.Context) error {
	err := e.Stop(ctx)
	e.pool.Close()
	return err
}

// insertBatch is how many River's own benchmark inserts at once.
const insertBatch = 5000

// Insert inserts n instances.
func Insert(ctx context.Context, e *Engine, n int, spec func(i int) fsm.Spec) error {
	for from := 0; from < n; from += insertBatch {
		specs := make([]fsm.Spec, 0, insertBatch)
		for i := from; i < min(n, from+insertBatch); i++ {
			specs = append(specs, spec(i))
		}
		rows, err := e.InsertMany(ctx, specs)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Duplicate {
				return errors.New("a new instance was taken for a duplicate")
			}
		}
	}
	return nil
}

// Fill inserts n instances by a separate client.
func Fill(ctx context.Context, db *lab.Database, n int, spec func(i int) fsm.Spec) error {
	e, err := Client(ctx, db, nil)
	if err != nil {
		return err
	}
	defer e.pool.Close()
	return Insert(ctx, e, n, spec)
}

// Ended returns how many instances are done.
func Ended(ctx context.Context, db *lab.Database) (int64, error) {
	return db.Int(ctx, "SELECT count(*) FROM gendurable.gen_durable WHERE status = 'done'")
}

// Check checks that all n instances are done.
func Check(ctx context.Context, db *lab.Database, n int) error {
	done, err := Ended(ctx, db)
	if err == nil && done != int64(n) {
		err = fmt.Errorf("%d of %d instances are done", done, n)
	}
	return err
}

// Work starts an engine with these machines, waits until their steps have run this often, and stops
// the engine: then the last outcome is durable. The steps count, not a hook, since an engine with
// hooks is slower than one without.
func Work(db *lab.Database, runs int, o Options, machines func(ran func()) []fsm.Definition) func(ctx context.Context) (end func(context.Context) error, err error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		over := lab.NewCountdown(runs)
		o.Machines = machines(func() { over.Done(1) })
		e, err := Start(ctx, db, o)
		if err != nil {
			return nil, err
		}
		if err := over.Wait(ctx); err != nil {
			return e.Close, err
		}
		return e.Close, e.Stop(ctx)
	}
}
