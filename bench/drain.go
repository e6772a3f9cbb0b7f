package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/ceiling"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// drainNoops is P1: jobs that do nothing, inserted before. The time is from the start of the engine
// to the last durable end.
func drainNoops(_ context.Context, b *bench) (*trial, error) {
	n := b.count(100_000)
	return &trial{
		contenders: []contender{
			{"ours", func(ctx context.Context) (report.Sample, error) {
				return b.drainOurs(ctx, "P1", n, ours.Options{Concurrency: b.workers})
			}},
			{"river", func(ctx context.Context) (report.Sample, error) { return b.drainRiver(ctx, n, peers.RiverTuned) }},
			{"river default", func(ctx context.Context) (report.Sample, error) {
				return b.drainRiver(ctx, b.count(3000), peers.RiverDefault)
			}},
			{"ceiling", func(ctx context.Context) (report.Sample, error) { return b.drainCeiling(ctx, n, 1) }},
		},
		checks: []report.Check{
			{Label: "river", Of: "ours", Against: "river", By: report.Rate, AtLeast: 2},
			{Label: "ceiling", Of: "ours", Against: "ceiling", By: report.Rate, AtLeast: 0.8},
			{Label: "river-default", Of: "ours", Against: "river default", By: report.Rate},
		},
	}, nil
}

// drainTuned is P2: the same against our own best-tuned, which is the best of a few settings that a
// user could find.
func drainTuned(_ context.Context, b *bench) (*trial, error) {
	n := b.count(50_000)
	tuned := []ours.Options{
		{Concurrency: 1000, Conns: 8, Change: buffered(2000)},
		{Concurrency: 4000, Conns: 8},
		{Concurrency: 2000, Conns: 4, Change: buffered(4000)},
	}
	return &trial{
		contenders: []contender{
			{"default", func(ctx context.Context) (report.Sample, error) {
				return b.drainOurs(ctx, "P2", n, ours.Options{Concurrency: b.workers})
			}},
			{"tuned", func(ctx context.Context) (report.Sample, error) {
				return best(tuned, func(o ours.Options) (report.Sample, error) { return b.drainOurs(ctx, "P2-tuned", n, o) })
			}},
		},
		checks: []report.Check{{Label: "tuned", Of: "default", Against: "tuned", By: report.Rate, AtLeast: 0.8}},
		notes:  []string{"tuned is the best of concurrency 1000 with 2000 buffered, 4000, and 2000 with 4000 buffered, on 8, 8 and 4 connections"},
	}, nil
}

func buffered(claims int) func(*engine.Config) {
	return func(c *engine.Config) {
		for name, q := range c.Queues {
			q.Buffer = claims
			c.Queues[name] = q
		}
	}
}

// best returns the sample of the best of several ways, by rate.
func best[T any](ways []T, run func(T) (report.Sample, error)) (report.Sample, error) {
	var top report.Sample
	for _, way := range ways {
		sample, err := run(way)
		if err != nil {
			return nil, err
		}
		if top == nil || sample[report.Rate] > top[report.Rate] {
			top = sample
		}
	}
	return top, nil
}

func noop(i int) fsm.Spec { return ours.Noop.New(ours.NewOrder(i)) }

func noops(ran func()) []fsm.Definition {
	return []fsm.Definition{ours.NoopMachine(func(ours.Order) { ran() })}
}

// drainOurs inserts n jobs, then measures an engine from its start until all have ended.
func (b *bench) drainOurs(ctx context.Context, name string, n int, o ours.Options) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.lab.Checkpoint(ctx), ours.Fill(ctx, db, n, noop), ours.Settle(ctx, db)); err != nil {
		return nil, err
	}
	sample, err := b.measure(ctx, db, n, b.profile(name, ours.Work(db, n, o, noops)))
	return sample, errors.Join(err, ours.Check(ctx, db, n))
}

// drainRiver is drainOurs for River.
func (b *bench) drainRiver(ctx context.Context, n int, o peers.RiverOptions) (report.Sample, error) {
	db, err := b.river(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.lab.Checkpoint(ctx), peers.RiverFill(ctx, db, n), peers.RiverSettle(ctx, db)); err != nil {
		return nil, err
	}
	sample, err := b.measure(ctx, db, n, peers.RiverWork(db, n, o))
	return sample, errors.Join(err, peers.RiverCheck(ctx, db, n))
}

// drainCeiling takes n instances through so many steps without an engine, by one connection and by
// two; the better one counts.
func (b *bench) drainCeiling(ctx context.Context, n, steps int) (report.Sample, error) {
	return best([]int{1, 2}, func(conns int) (report.Sample, error) {
		db, err := b.database(ctx, "ceiling", ours.Migrate, ours.Clear)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(b.lab.Checkpoint(ctx), ours.Fill(ctx, db, n, noop), ours.Settle(ctx, db)); err != nil {
			return nil, err
		}
		var pool *pgxpool.Pool
		sample, err := b.measure(ctx, db, n*steps, func(ctx context.Context) (func(context.Context) error, error) {
			if pool, err = ceiling.Pool(ctx, db, conns); err != nil {
				return nil, err
			}
			return func(context.Context) error { pool.Close(); return nil }, ceiling.Drain(ctx, pool, steps)
		})
		return sample, errors.Join(err, ours.Check(ctx, db, n))
	})
}
