package main

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// chainSteps is how many steps the instances of P3 have.
const chainSteps = 10

// runChains is P3: instances of ten steps that do nothing. Rates are steps per second. DBOS and
// go-workflows run and are warm before; to insert a workflow is to start it, so their rates include
// their inserts, and are compared with our rate that includes ours.
func runChains(_ context.Context, b *bench) (*trial, error) {
	n := b.count(20_000)
	return &trial{
		contenders: []contender{
			{"ours", func(ctx context.Context) (report.Sample, error) { return b.chainOurs(ctx, n) }},
			{"dbos", func(ctx context.Context) (report.Sample, error) { return b.chainDBOS(ctx, b.count(1200)) }},
			{"go-workflows", func(ctx context.Context) (report.Sample, error) { return b.chainGoWorkflows(ctx, b.count(160)) }},
			{"ceiling", func(ctx context.Context) (report.Sample, error) { return b.drainCeiling(ctx, n, chainSteps) }},
		},
		checks: []report.Check{
			{Label: "dbos", Of: "ours", Against: "dbos", By: report.Inserted, AtLeast: 20},
			{Label: "ceiling", Of: "ours", Against: "ceiling", By: report.Rate, AtLeast: 0.7},
			{Label: "go-workflows", Of: "ours", Against: "go-workflows", By: report.Inserted},
		},
	}, nil
}

func chain(i int) fsm.Spec { return ours.Chain.New(ours.NewOrder(i)) }

func (b *bench) chainOurs(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.lab.Checkpoint(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := ours.Fill(ctx, db, n, chain); err != nil {
		return nil, err
	}
	inserting := time.Since(began).Seconds()
	if err := ours.Settle(ctx, db); err != nil {
		return nil, err
	}
	work := ours.Work(db, n*chainSteps, ours.Options{Concurrency: b.workers}, func(ran func()) []fsm.Definition {
		return []fsm.Definition{ours.ChainMachine(chainSteps, ran)}
	})
	sample, err := b.measure(ctx, db, n*chainSteps, b.profile("P3", work))
	if err := errors.Join(err, ours.Check(ctx, db, n)); err != nil {
		return nil, err
	}
	steps := float64(n * chainSteps)
	sample[report.Inserted] = steps / (steps/sample[report.Rate] + inserting)
	return sample, nil
}

func (b *bench) chainDBOS(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.database(ctx, "dbos", peers.DBOSMigrate, peers.DBOSClear)
	if err != nil {
		return nil, err
	}
	d, err := peers.NewDBOS(ctx, db, chainSteps)
	if err != nil {
		return nil, err
	}
	warm := n/20 + 1
	if err := errors.Join(d.Run(warm), b.lab.Checkpoint(ctx)); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	sample, err := b.measureRunning(ctx, db, n*chainSteps, func() error { return d.Run(n) }, d.Close)
	return sample, errors.Join(err, peers.DBOSCheck(ctx, db, warm+n, chainSteps))
}

func (b *bench) chainGoWorkflows(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.database(ctx, "goworkflows", peers.GoWorkflowsMigrate, peers.GoWorkflowsClear)
	if err != nil {
		return nil, err
	}
	g, err := peers.NewGoWorkflows(ctx, db, chainSteps)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(g.Run(ctx, n/20+1), b.lab.Checkpoint(ctx)); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return b.measureRunning(ctx, db, n*chainSteps, func() error { return g.Run(ctx, n) }, g.Close)
}

// measureRunning measures an engine that was started before.
func (b *bench) measureRunning(ctx context.Context, db *lab.Database, rows int, run, end func() error) (report.Sample, error) {
	sample, err := b.measure(ctx, db, rows, func(context.Context) (func(context.Context) error, error) {
		return func(context.Context) error { return end() }, run()
	})
	if err == nil {
		sample[report.Inserted] = sample[report.Rate]
	}
	return sample, err
}
