package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// The trials of this file put rows that cannot run ahead of rows that can.

// hotKey is P9: 100 k rows of one partition key, one of which may run at a time, ahead of 1 k other
// keys with ten rows each. The rate is the others'. Single inserts leave unsettled rows: each is in
// front until a pick has read it.
func hotKey(_ context.Context, b *bench) (*trial, error) {
	hot, keys := b.count(100_000), b.count(1000)
	const each = 10
	others := func(i int) fsm.Spec { return noop(i).PartitionKey("key:" + strconv.Itoa(i%keys)) }
	run := func(ahead int, settle ...string) func(context.Context) (report.Sample, error) {
		return func(ctx context.Context) (report.Sample, error) {
			ahead := backlog{n: ahead, spec: func(int) fsm.Spec { return noop(hotOrder).PartitionKey("hot") }, then: settle}
			return b.drainBehind(ctx, "P9", ahead, keys*each, others)
		}
	}
	return &trial{
		contenders: []contender{
			{"without", run(0)},
			{"bulk", run(hot)},
			{"unsettled", run(hot, "UPDATE gendurable.gen_durable SET pick_lane = 0 WHERE pick_lane = 1")},
		},
		checks: []report.Check{
			{Label: "bulk", Of: "bulk", Against: "without", By: report.Rate, AtLeast: 0.7},
			{Label: "unsettled", Of: "unsettled", Against: "without", By: report.Rate},
		},
	}, nil
}

// deadRows is P10: 10 k rows that no worker here can run, at an urgent priority ahead of live work.
func deadRows(_ context.Context, b *bench) (*trial, error) {
	dead, live := b.count(10_000), b.count(50_000)
	run := func(ahead backlog) func(context.Context) (report.Sample, error) {
		return func(ctx context.Context) (report.Sample, error) {
			return b.drainBehind(ctx, "P10", ahead, live, func(i int) fsm.Spec { return noop(i).Priority(10) })
		}
	}
	unknown := fsm.Declare[ours.Order, ours.Result]("unknown")
	return &trial{
		contenders: []contender{
			{"without", run(backlog{})},
			{"unknown", run(backlog{n: dead, spec: func(i int) fsm.Spec { return unknown.New(ours.NewOrder(i)) }})},
			{"delayed", run(backlog{n: dead, spec: func(i int) fsm.Spec { return noop(i).After(24 * time.Hour) }})},
		},
		checks: []report.Check{
			{Label: "unknown", Of: "unknown", Against: "without", By: report.Rate, AtLeast: 0.9},
			{Label: "delayed", Of: "delayed", Against: "without", By: report.Rate, AtLeast: 0.9},
		},
	}, nil
}

// hotOrder marks the rows that the trial does not wait for.
const hotOrder = -1

// backlog is the rows ahead.
type backlog struct {
	n    int
	spec func(i int) fsm.Spec
	then []string // SQL that completes it
}

// drainBehind measures from the engine's start until all n rows behind the backlog have run.
func (b *bench) drainBehind(ctx context.Context, name string, ahead backlog, n int, spec func(i int) fsm.Spec) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.lab.Checkpoint(ctx); err != nil {
		return nil, err
	}
	if ahead.n > 0 {
		if err := errors.Join(ours.Fill(ctx, db, ahead.n, ahead.spec), db.Exec(ctx, ahead.then...)); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(ours.Fill(ctx, db, n, spec), ours.Settle(ctx, db)); err != nil {
		return nil, err
	}
	over := lab.NewCountdown(n)
	ran := func(o ours.Order) {
		if o.N != hotOrder {
			over.Done(1)
		}
	}
	return b.measure(ctx, db, n, b.profile(name, func(ctx context.Context) (func(context.Context) error, error) {
		e, err := ours.Start(ctx, db, ours.Options{Concurrency: b.workers, Machines: []fsm.Definition{ours.NoopMachine(ran)}})
		if err != nil {
			return nil, err
		}
		return e.Close, over.Wait(ctx)
	}))
}
