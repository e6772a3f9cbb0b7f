package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/ceiling"
	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// startLatency is P5: the time from before the insert of one job to the first line of its step, in
// an engine with nothing to do. River is tuned, and wakes by NOTIFY.
func startLatency(_ context.Context, b *bench) (*trial, error) {
	n := b.count(200)
	return &trial{
		contenders: []contender{
			{"ours", func(ctx context.Context) (report.Sample, error) { return b.startsOurs(ctx, n) }},
			{"river", func(ctx context.Context) (report.Sample, error) { return b.startsRiver(ctx, n) }},
			{"bare insert", func(ctx context.Context) (report.Sample, error) { return b.inserts(ctx, n) }},
		},
		checks: []report.Check{
			{Label: "river-p50", Of: "ours", Against: "river", By: report.P50, AtMost: 0.5},
			{Label: "river-p99", Of: "ours", Against: "river", By: report.P99, AtMost: 1},
			{Label: "bare-p50", Of: "ours", Against: "bare insert", By: report.P50},
			{Label: "bare-of-river-p50", Of: "bare insert", Against: "river", By: report.P50},
		},
	}, nil
}

// stepLatency is P6: the time from the start of one step of an instance to the start of the next,
// while nothing else runs, against the commit of an UPDATE of the same columns of one row.
func stepLatency(_ context.Context, b *bench) (*trial, error) {
	n := b.count(2000)
	return &trial{
		contenders: []contender{
			{"ours", func(ctx context.Context) (report.Sample, error) { return b.stepsOurs(ctx, n) }},
			{"update", func(ctx context.Context) (report.Sample, error) { return b.updates(ctx, n) }},
		},
		checks: []report.Check{
			{Label: "update-p50", Of: "ours", Against: "update", By: report.P50, AtMost: 1.6},
			{Label: "update-p99", Of: "ours", Against: "update", By: report.P99},
		},
	}, nil
}

// signalLatency is P7: the time from before a signal is sent to the first line of the step that it
// wakes.
func signalLatency(_ context.Context, b *bench) (*trial, error) {
	n := b.count(200)
	return &trial{
		contenders: []contender{
			{"signal", func(ctx context.Context) (report.Sample, error) { return b.signals(ctx, n) }},
			{"insert", func(ctx context.Context) (report.Sample, error) { return b.startsOurs(ctx, n) }},
		},
		checks: []report.Check{{Label: "insert-p50", Of: "signal", Against: "insert", By: report.P50, AtMost: 2}},
	}, nil
}

// quantiles returns a sample of latencies.
func quantiles(took []time.Duration) report.Sample {
	p50, p99 := report.Quantiles(took, func(d time.Duration) float64 { return d.Seconds() * 1000 })
	return report.Sample{report.P50: p50, report.P99: p99}
}

// gap returns a pause between two events, so that each finds the engine idle, and none keeps step
// with a ticker.
func gap() time.Duration { return 10*time.Millisecond + rand.N(20*time.Millisecond) } //nolint:gosec // no secret

// latencies sends n times, and waits each time until started has the time of the step that this led
// to. The first few warm up.
func latencies(ctx context.Context, n int, pause func() time.Duration, send func(ctx context.Context, i int) error, started <-chan time.Time) (report.Sample, error) {
	const warm = 5
	took := make([]time.Duration, 0, n)
	for i := range n + warm {
		if err := lab.Sleep(ctx, pause()); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := send(ctx, i); err != nil {
			return nil, err
		}
		select {
		case at := <-started:
			if i >= warm {
				took = append(took, at.Sub(began))
			}
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("nothing started within a minute of sending number %d", i)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return quantiles(took), nil
}

func (b *bench) startsOurs(ctx context.Context, n int) (report.Sample, error) {
	return b.startsOver(ctx, n, gap, nil)
}

// startsOver measures over a pool that change has changed; nil changes nothing.
func (b *bench) startsOver(ctx context.Context, n int, pause func() time.Duration, change func(*pgxpool.Config)) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	e, err := ours.Start(ctx, db, ours.Options{Machines: []fsm.Definition{ours.NoopMachine(func(ours.Order) { started <- time.Now() })}, Pool: change})
	if err != nil {
		return nil, err
	}
	sample, err := latencies(ctx, n, pause, func(ctx context.Context, i int) error {
		_, err := e.Insert(ctx, noop(i))
		return err
	}, started)
	return sample, errors.Join(err, e.Close(ctx))
}

func (b *bench) startsRiver(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.river(ctx)
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	o := peers.RiverTuned
	o.Ran = func(ours.Order) { started <- time.Now() }
	r, err := peers.NewRiver(ctx, db, o)
	if err != nil {
		return nil, err
	}
	if err := r.Client.Start(ctx); err != nil {
		return nil, err
	}
	sample, err := latencies(ctx, n, gap, r.InsertOne, started)
	return sample, errors.Join(err, r.Close(ctx))
}

// inserts measures what no engine can do without: the commit of one row by one statement.
func (b *bench) inserts(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := ceiling.Pool(ctx, db, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	started := make(chan time.Time, 1)
	return latencies(ctx, n, gap, func(ctx context.Context, i int) error {
		state, err := json.Marshal(ours.NewOrder(i))
		if err == nil {
			err = ceiling.Insert(ctx, pool, state)
		}
		started <- time.Now()
		return err
	}, started)
}

func (b *bench) signals(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	parked := lab.NewCountdown(1)
	e, err := ours.Start(ctx, db, ours.Options{
		Machines: []fsm.Definition{ours.WaiterMachine(func() { parked.Done(1) }, func(ours.Order) { started <- time.Now() })}})
	if err != nil {
		return nil, err
	}
	id, err := e.Insert(ctx, ours.Waiter.New(ours.NewOrder(0)))
	if err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	if err := parked.Wait(ctx); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	sample, err := latencies(ctx, n, gap, func(ctx context.Context, i int) error {
		_, err := e.Signal(ctx, id, ours.Wake.With(ours.NewOrder(i)))
		return err
	}, started)
	return sample, errors.Join(err, e.Close(ctx))
}

func (b *bench) stepsOurs(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	const warm = 50
	starts := make([]time.Time, 0, n+warm+1)
	over := lab.NewCountdown(n + warm + 1)
	e, err := ours.Start(ctx, db, ours.Options{Machines: []fsm.Definition{ours.LoopMachine(func() {
		starts = append(starts, time.Now()) // only one step runs at a time
		over.Done(1)
	})}})
	if err != nil {
		return nil, err
	}
	_, err = e.Insert(ctx, ours.Loop.New(ours.NewOrder(n+warm+1)))
	if err == nil {
		err = over.Wait(ctx)
	}
	if err := errors.Join(err, e.Close(ctx)); err != nil {
		return nil, err
	}
	took := make([]time.Duration, 0, n)
	for i := warm; i < warm+n; i++ {
		took = append(took, starts[i+1].Sub(starts[i]))
	}
	return quantiles(took), nil
}

func (b *bench) updates(ctx context.Context, n int) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	if err := ours.Fill(ctx, db, 1, noop); err != nil {
		return nil, err
	}
	pool, err := ceiling.Pool(ctx, db, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	took, err := ceiling.Updates(ctx, pool, n)
	return quantiles(took), err
}
