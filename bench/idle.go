package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/engine"
)

// idleQueues is P11: the load that a process with ten queues and nothing to do puts on the server.
func idleQueues(_ context.Context, b *bench) (*trial, error) {
	return &trial{
		rounds: 1,
		contenders: []contender{
			{"ours", b.idleOurs},
			{"river", b.idleRiver},
		},
		checks: []report.Check{
			{Label: "statements", Of: "ours", By: report.Trips, AtMost: 2},
			{Label: "river-statements", Of: "river", By: report.Trips},
		},
		notes: []string{"a statement is what goes in one round trip; BEGIN, its settings and COMMIT travel with it, and are in statements/s"},
	}, nil
}

const queues = 10

// idle measures after the polls have slowed down.
func (b *bench) idle(ctx context.Context, wire *lab.Wire) (report.Sample, error) {
	if err := lab.Sleep(ctx, b.span(6*time.Second)); err != nil {
		return nil, err
	}
	trips, commands, began := wire.Trips(), wire.Commands(), time.Now()
	if err := lab.Sleep(ctx, b.span(15*time.Second)); err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	return report.Sample{
		report.Trips:      float64(wire.Trips()-trips) / took,
		report.Statements: float64(wire.Commands()-commands) / took,
	}, nil
}

// span scales the duration of a measurement.
func (b *bench) span(d time.Duration) time.Duration {
	return max(time.Duration(float64(d)*min(b.scale, 1)), min(d, time.Second))
}

func (b *bench) idleOurs(ctx context.Context) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	var wire lab.Wire
	e, err := ours.Start(ctx, db, ours.Options{Pool: wire.Tap, Machines: noops(func() {}), Change: func(c *engine.Config) {
		for i := range queues - 1 {
			c.Queues["queue"+strconv.Itoa(i)] = engine.Queue{}
		}
	}})
	if err != nil {
		return nil, err
	}
	sample, err := b.idle(ctx, &wire)
	return sample, errors.Join(err, e.Close(ctx))
}

func (b *bench) idleRiver(ctx context.Context) (report.Sample, error) {
	db, err := b.river(ctx)
	if err != nil {
		return nil, err
	}
	var wire lab.Wire
	o := peers.RiverDefault
	o.Pool, o.Queues = wire.Tap, queues
	r, err := peers.NewRiver(ctx, db, o)
	if err != nil {
		return nil, err
	}
	if err := r.Client.Start(ctx); err != nil {
		return nil, err
	}
	sample, err := b.idle(ctx, &wire)
	return sample, errors.Join(err, r.Close(ctx))
}
