package main

import (
	"context"
	"errors"

	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// drainBatches is B1: jobs whose only step is a batch step, beside the same jobs whose step is
// called for each by itself. The step does nothing, so the ratio is what gathering costs, or saves,
// before what the host gets from one call for many.
func drainBatches(_ context.Context, b *bench) (*trial, error) {
	n := b.count(100_000)
	run := func(name string, size int) contender {
		return contender{name, func(ctx context.Context) (report.Sample, error) {
			db, err := b.ours(ctx)
			if err != nil {
				return nil, err
			}
			spec := func(i int) fsm.Spec { return ours.Together.New(ours.NewOrder(i)) }
			if err := errors.Join(b.lab.Checkpoint(ctx), ours.Fill(ctx, db, n, spec), ours.Settle(ctx, db)); err != nil {
				return nil, err
			}
			sample, err := b.measure(ctx, db, n, b.profile("B1", ours.Work(db, n, ours.Options{Concurrency: b.workers}, func(ran func()) []fsm.Definition {
				return []fsm.Definition{ours.TogetherMachine(size, ran)}
			})))
			return sample, errors.Join(err, ours.Check(ctx, db, n))
		}}
	}
	against := func(name string) []report.Check {
		return []report.Check{
			{Label: name, Of: name, Against: "one by one", By: report.Rate},
			{Label: name + " server", Of: name, Against: "one by one", By: report.Server},
			{Label: name + " client", Of: name, Against: "one by one", By: report.Client},
		}
	}
	return &trial{
		contenders: []contender{run("one by one", 1), run("10", 10), run("100", 100)},
		checks:     append(against("10"), against("100")...),
		notes:      []string{"10 and 100 are the instances of one call"},
	}, nil
}
