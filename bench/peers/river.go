// Package peers runs the engines that gendurable is compared with, each as its own documentation
// and benchmarks do.
package peers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
)

// riverArgs carries the same data as our instances.
type riverArgs struct{ ours.Order }

func (riverArgs) Kind() string { return "noop" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	ran func(ours.Order)
}

func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	if w.ran != nil {
		w.ran(job.Args.Order)
	}
	return nil
}

// River is a client that works, with its pool.
type River struct {
	Client *river.Client[pgx.Tx]
	pool   *pgxpool.Pool
}

// RiverOptions are the settings that differ from River's defaults.
type RiverOptions struct {
	Workers  int
	Cooldown time.Duration
	Poll     time.Duration
	PollOnly bool
	Conns    int
	Queues   int           // how many to make beside the default one
	Retain   time.Duration // of completed jobs; 0: River's default
	Ran      func(ours.Order)
	Pool     func(config *pgxpool.Config) // changes the pool's configuration
}

// RiverTuned has the settings of River's own benchmark, with the number of workers that it calls
// optimal.
var RiverTuned = RiverOptions{Workers: 1000, Cooldown: 2 * time.Millisecond, Poll: 20 * time.Millisecond, Conns: 10}

// RiverDefault has the settings with which its documentation starts.
var RiverDefault = RiverOptions{Workers: 100}

// RiverMigrate makes River's tables.
func RiverMigrate(ctx context.Context, db *lab.Database) error {
	pool, err := db.Pool(ctx, 0)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: ours.Logger()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// RiverClear empties River's table.
func RiverClear(ctx context.Context, db *lab.Database) error {
	return db.Exec(ctx, "TRUNCATE river_job")
}

// RiverSettle vacuums and analyses River's table.
func RiverSettle(ctx context.Context, db *lab.Database) error {
	return db.Exec(ctx, "VACUUM (ANALYZE) river_job")
}

// NewRiver makes a client and does not start it.
func NewRiver(ctx context.Context, db *lab.Database, o RiverOptions) (*River, error) {
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

// OverPool makes a client on a pool, which it then owns.
func OverPool(pool *pgxpool.Pool, o RiverOptions) (*River, error) {
	queues := map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: o.Workers}}
	for i := 1; i < o.Queues; i++ {
		queues["queue"+strconv.Itoa(i)] = river.QueueConfig{MaxWorkers: o.Workers}
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{ran: o.Ran})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:            queues,
		FetchCooldown:     o.Cooldown,
		FetchPollInterval: o.Poll,
		PollOnly:          o.PollOnly,
		Workers:           workers,

		CompletedJobRetentionPeriod: o.Retain,
		Logger:                      ours.Logger(),
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &River{Client: client, pool: pool}, nil
}

// RiverWork returns work that ends when a client has worked n jobs and has stopped, which writes
// all of their ends.
func RiverWork(db *lab.Database, n int, o RiverOptions) func(ctx context.Context) (end func(context.Context) error, err error) {
	return func(ctx context.Context) (func(context.Context) error, error) {
		over := lab.NewCountdown(n)
		o.Ran = func(ours.Order) { over.Done(1) }
		r, err := NewRiver(ctx, db, o)
		if err != nil {
			return nil, err
		}
		if err := r.Client.Start(ctx); err != nil {
			return r.Close, err
		}
		if err := over.Wait(ctx); err != nil {
			return r.Close, err
		}
		return r.Close, r.Client.Stop(ctx)
	}
}

// Close stops the client and closes its pool.
func (r *River) Close(ctx context.Context) error {
	err := r.Client.Stop(ctx)
	r.pool.Close()
	return err
}

// Release closes the pool of a client that was not started.
func (r *River) Release() { r.pool.Close() }

// Insert inserts n jobs in batches as River's own benchmark does, but by River's fastest call.
func (r *River) Insert(ctx context.Context, n int) error {
	const batch = 5000
	for from := 0; from < n; from += batch {
		params := make([]river.InsertManyParams, 0, batch)
		for i := from; i < min(n, from+batch); i++ {
			params = append(params, river.InsertManyParams{Args: riverArgs{ours.NewOrder(i)}})
		}
		if _, err := r.Client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

// InsertOne inserts one job.
func (r *River) InsertOne(ctx context.Context, i int) error {
	_, err := r.Client.Insert(ctx, riverArgs{ours.NewOrder(i)}, nil)
	return err
}

// RiverFill inserts n jobs by a separate client.
func RiverFill(ctx context.Context, db *lab.Database, n int) error {
	r, err := NewRiver(ctx, db, RiverDefault)
	if err != nil {
		return err
	}
	defer r.Release()
	return r.Insert(ctx, n)
}

// RiverEnded returns how many jobs are completed.
func RiverEnded(ctx context.Context, db *lab.Database) (int64, error) {
	return db.Int(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'")
}

// RiverCheck checks that all n jobs are completed.
func RiverCheck(ctx context.Context, db *lab.Database, n int) error {
	done, err := RiverEnded(ctx, db)
	if err == nil && done != int64(n) {
		err = fmt.Errorf("%d of %d jobs are completed", done, n)
	}
	return err
}
