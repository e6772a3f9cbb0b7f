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

// idleFleet is P23: the load of the largest fleet, with ten queues a process and nothing to do.
func idleFleet(_ context.Context, b *bench) (*trial, error) {
	n := b.fleets[len(b.fleets)-1]
	t := &trial{
		rounds: 3,
		checks: []report.Check{
			{Label: "river", Of: fleetName("ours", n), Against: fleetName("river", n), By: report.ServerLoad, AtMost: 1},
			{Label: "river-client", Of: fleetName("ours", n), Against: fleetName("river", n), By: report.ClientLoad},
		},
		notes: []string{"both with their defaults, apart from the pools; a thousand ms/s would be a whole processor, and round trips are those of all processes"},
	}
	for _, s := range b.sides() {
		t.contenders = append(t.contenders, contender{fleetName(s.name, n), func(ctx context.Context) (report.Sample, error) {
			return b.idleCrew(ctx, s, n)
		}})
	}
	return t, nil
}

// idleCrew measures workers after their polls have slowed down.
func (b *bench) idleCrew(ctx context.Context, s side, n int) (sample report.Sample, err error) {
	db, err := s.database(ctx)
	if err != nil {
		return nil, err
	}
	c, err := launchCrew(ctx, n, workerFlags{system: s.name, url: db.URL, schemas: engine.DefaultSchema, stock: true, conns: fleetConns, queues: queues})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close(), db.Quiet(ctx)) }()
	c.tally.Open(1)
	if err := c.wait(ctx, func() bool { return c.tally.Started() == n }); err != nil {
		return nil, err
	}
	if err := lab.Sleep(ctx, b.span(6*time.Second)); err != nil {
		return nil, err
	}
	meter, err := b.lab.Start(ctx, c.pids()...)
	if err != nil {
		return nil, err
	}
	before := c.tally.Traffic()
	slept := lab.Sleep(ctx, b.span(15*time.Second))
	cost, err := meter.Stop(ctx)
	if err := errors.Join(slept, err); err != nil {
		return nil, err
	}
	took, traffic := cost.Took.Seconds(), c.tally.Traffic().Minus(before)
	sample = report.Sample{
		report.Trips:      float64(traffic.Trips) / took,
		report.Statements: float64(traffic.Commands) / took,
		report.ClientLoad: cost.Client.Seconds() * 1000 / took,
	}
	if cost.Server > 0 {
		sample[report.ServerLoad] = cost.Server.Seconds() * 1000 / took
	}
	return sample, nil
}
