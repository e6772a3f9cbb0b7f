package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/migrate"
)

type benchCommand struct {
	Jobs        int `default:"10000" help:"How many jobs are inserted, and then run as fast as possible."`
	Singles     int `default:"200"   help:"How many jobs are then inserted one by one, each after the last has ended, to measure latencies."`
	Concurrency int `default:"0"     help:"How many jobs run at once; 0: the engine's default."`
}

func (*benchCommand) lasts() bool { return true }

const (
	// benchMost keeps a typing error from filling a server.
	benchMost = 1_000_000
	// benchBatch is how many jobs one statement inserts.
	benchBatch = 1000
	// benchDrop bounds the clean-up, which an interrupt does not cut short.
	benchDrop = 30 * time.Second
)

// measured holds the results of the bench.
type measured struct {
	Jobs        int       `json:"jobs"`
	InsertedPer float64   `json:"inserted_per_second"`
	JobsPer     float64   `json:"jobs_per_second"`
	Latency     latencies `json:"latency_ms"` // from before Insert until Wait has returned
}

type latencies struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

var noop = fsm.Declare[int, int]("bench")

// Run runs the command.
func (c *benchCommand) Run(ctx context.Context, a *app) (err error) {
	if c.Jobs < 1 || c.Jobs > benchMost || c.Singles < 0 || c.Singles > benchMost || c.Concurrency < 0 {
		return usagef("--jobs is 1 to %d, --singles 0 to %d, --concurrency not negative", benchMost, benchMost)
	}
	pool, err := a.connect(ctx, func(config *pgxpool.Config) {
		config.MaxConns = 10
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // like an engine's, so that the bench measures the server as it is used
	})
	if err != nil {
		return err
	}
	schema := "gendurable_bench_" + strings.ToLower(rand.Text()[:10])
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchDrop)
		defer cancel()
		if _, dropping := pool.Exec(ctx, within(schema, `DROP SCHEMA IF EXISTS {s} CASCADE`)); dropping != nil {
			err = errors.Join(err, fmt.Errorf("drop schema %q, which is left behind: %w", schema, dropping))
		}
	}()
	if _, err := (migrate.Migrator{Pool: pool, Schema: schema}).Up(ctx); err != nil {
		return err
	}
	out, err := c.measure(ctx, pool, schema, a.logger(slog.LevelError))
	if err != nil {
		return err
	}
	return a.show(out, func(w io.Writer) {
		fmt.Fprintf(w, "%d jobs: inserted at %.0f/s, run at %.0f/s\n", out.Jobs, out.InsertedPer, out.JobsPer)
		if l := out.Latency; l.Count > 0 {
			fmt.Fprintf(w, "%d single ones, from insert to result: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms\n",
				l.Count, l.P50, l.P90, l.P99, l.Max)
		}
	})
}

func (c *benchCommand) measure(ctx context.Context, pool *pgxpool.Pool, schema string, logger *slog.Logger) (out measured, err error) {
	out.Jobs = c.Jobs
	var ended atomic.Int64
	all := make(chan struct{})
	eng, err := engine.New(engine.Config{
		Pool: pool, Schema: schema, Logger: logger, Queues: map[string]engine.Queue{"default": {Concurrency: c.Concurrency}},
		Machines: []fsm.Definition{noop.Job(func(_ context.Context, n int) (int, error) { return n, nil })},
		Hooks: []engine.Hooks{{Commit: func(_ context.Context, e engine.CommitEvent) {
			if n := ended.Add(int64(e.Outcomes)); n >= int64(c.Jobs) && n-int64(e.Outcomes) < int64(c.Jobs) {
				close(all)
			}
		}}},
	})
	if err != nil {
		return out, err
	}
	began := time.Now()
	for left := c.Jobs; left > 0; left -= benchBatch {
		specs := make([]fsm.Spec, min(left, benchBatch))
		for n := range specs {
			specs[n] = noop.New(n)
		}
		if _, err := eng.InsertMany(ctx, specs); err != nil {
			return out, err
		}
	}
	out.InsertedPer = float64(c.Jobs) / time.Since(began).Seconds()

	began = time.Now()
	if err := eng.Start(ctx); err != nil {
		return out, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchDrop)
		defer cancel()
		err = errors.Join(err, eng.Stop(ctx))
	}()
	select {
	case <-ctx.Done():
		return out, context.Cause(ctx)
	case <-all:
	}
	out.JobsPer = float64(c.Jobs) / time.Since(began).Seconds()

	took := make([]time.Duration, c.Singles)
	for n := range took {
		began := time.Now()
		id, err := eng.Insert(ctx, noop.New(n))
		if err != nil {
			return out, err
		}
		if _, err := noop.Wait(ctx, eng, id); err != nil {
			return out, err
		}
		took[n] = time.Since(began)
	}
	out.Latency = percentiles(took)
	return out, nil
}

func percentiles(took []time.Duration) latencies {
	if len(took) == 0 {
		return latencies{}
	}
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1)+0.5)].Microseconds()) / 1000
	}
	return latencies{Count: len(took), P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}
