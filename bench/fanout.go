package main

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// fanOut is P12: one instance spawns children that do nothing, and goes on when all have ended. The
// rate is children per second, from the start of the engine to the durable end of the parent.
func fanOut(_ context.Context, b *bench) (*trial, error) {
	children, jobs := b.count(10_000), b.count(50_000)
	return &trial{
		contenders: []contender{
			{"fan-out", func(ctx context.Context) (report.Sample, error) { return b.fanOut(ctx, children) }},
			{"drain", func(ctx context.Context) (report.Sample, error) {
				return b.drainOurs(ctx, "P12-drain", jobs, ours.Options{Concurrency: b.workers})
			}},
		},
		checks: []report.Check{{Label: "drain", Of: "fan-out", Against: "drain", By: report.Rate, AtLeast: 0.5}},
	}, nil
}

func (b *bench) fanOut(ctx context.Context, children int) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	parent := func(i int) fsm.Spec { return ours.Parent.New(ours.NewOrder(children)) }
	if err := errors.Join(b.lab.Checkpoint(ctx), ours.Fill(ctx, db, 1, parent), ours.Settle(ctx, db)); err != nil {
		return nil, err
	}
	const parents = 2 // steps of the parent: it spawns, and it ends
	work := ours.Work(db, children+parents, ours.Options{Concurrency: b.workers}, func(ran func()) []fsm.Definition {
		return append(noops(ran), ours.ParentMachine(ran))
	})
	sample, err := b.measure(ctx, db, children, b.profile("P12", work))
	return sample, errors.Join(err, ours.Check(ctx, db, children+1))
}
