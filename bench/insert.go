package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// insertBulk is P4: one caller inserts 5,000 at once. Each of ours has a correlation key, which is
// looked up and kept unique, and the call returns a result for each; River's fastest call returns
// how many it inserted.
func insertBulk(_ context.Context, b *bench) (*trial, error) {
	n := b.count(100_000)
	keyed := func(i int) fsm.Spec { return noop(i).Key(fsm.Key("order:" + strconv.Itoa(i))) }
	return &trial{
		contenders: []contender{
			{"ours", func(ctx context.Context) (report.Sample, error) { return b.insertOurs(ctx, n, keyed) }},
			{"river", func(ctx context.Context) (report.Sample, error) { return b.insertRiver(ctx, n) }},
			{"ours, no key", func(ctx context.Context) (report.Sample, error) { return b.insertOurs(ctx, n, noop) }},
		},
		checks: []report.Check{
			{Label: "river", Of: "ours", Against: "river", By: report.Rate, AtLeast: 1.2},
			{Label: "river-without-keys", Of: "ours, no key", Against: "river", By: report.Rate},
		},
	}, nil
}

func (b *bench) insertOurs(ctx context.Context, n int, spec func(int) fsm.Spec) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	e, err := ours.Client(ctx, db, nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.lab.Checkpoint(ctx), ours.Insert(ctx, e, 10, noop)); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return b.measure(ctx, db, n, b.profile("P4", func(ctx context.Context) (func(context.Context) error, error) {
		return e.Close, ours.Insert(ctx, e, n, spec)
	}))
}

func (b *bench) insertRiver(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.river(ctx)
	if err != nil {
		return nil, err
	}
	r, err := peers.NewRiver(ctx, db, peers.RiverDefault)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.lab.Checkpoint(ctx), r.Insert(ctx, 10)); err != nil {
		r.Release()
		return nil, err
	}
	return b.measure(ctx, db, n, func(ctx context.Context) (func(context.Context) error, error) {
		return func(context.Context) error { r.Release(); return nil }, r.Insert(ctx, n)
	})
}
