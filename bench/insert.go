package main

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// insertCallers is how many callers insert at once if one leaves processors idle: client and server
// take turns in a call, which is one transaction.
const insertCallers = 4

// insertBulk is P4: one caller inserts 5,000 at once. Each of ours has a correlation key, which is
// looked up and kept unique, and the call returns a result for each; River's fastest call returns
// how many it inserted. Beside it stand several callers of each.
func insertBulk(_ context.Context, b *bench) (*trial, error) {
	n := b.count(100_000) / insertCallers * insertCallers
	keyed := func(i int) fsm.Spec { return noop(i).Key(fsm.Key("order:" + strconv.Itoa(i))) }
	return &trial{
		contenders: []contender{
			{"ours", func(ctx context.Context) (report.Sample, error) { return b.insertOurs(ctx, n, 1, keyed) }},
			{"river", func(ctx context.Context) (report.Sample, error) { return b.insertRiver(ctx, n, 1) }},
			{"ours, no key", func(ctx context.Context) (report.Sample, error) { return b.insertOurs(ctx, n, 1, noop) }},
			{"ours, 4 callers", func(ctx context.Context) (report.Sample, error) { return b.insertOurs(ctx, n, insertCallers, keyed) }},
			{"river, 4 callers", func(ctx context.Context) (report.Sample, error) { return b.insertRiver(ctx, n, insertCallers) }},
		},
		checks: []report.Check{
			{Label: "river", Of: "ours", Against: "river", By: report.Rate, AtLeast: 1.2},
			{Label: "river-without-keys", Of: "ours, no key", Against: "river", By: report.Rate},
			{Label: "4-callers", Of: "ours, 4 callers", Against: "river, 4 callers", By: report.Rate},
		},
	}, nil
}

// share splits n rows evenly among callers, who insert theirs at the same time.
func share(n, callers int, insert func(first, rows int) error) error {
	var all sync.WaitGroup
	rows, errs := n/callers, make([]error, callers)
	for i := range callers {
		all.Go(func() { errs[i] = insert(i*rows, rows) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (b *bench) insertOurs(ctx context.Context, n, callers int, spec func(int) fsm.Spec) (report.Sample, error) {
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
		return e.Close, share(n, callers, func(first, rows int) error {
			return ours.Insert(ctx, e, rows, func(i int) fsm.Spec { return spec(first + i) })
		})
	}))
}

func (b *bench) insertRiver(ctx context.Context, n, callers int) (report.Sample, error) {
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
		return func(context.Context) error { r.Release(); return nil },
			share(n, callers, func(_, rows int) error { return r.Insert(ctx, rows) })
	})
}
