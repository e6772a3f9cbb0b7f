package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// The trials of this file compare work behind gates with the same work without a gate, in turns in
// one run.

// perTenant is the gate of these trials: so many places for each value of the label.
const (
	perTenant   = "per-tenant"
	tenantLabel = "tenant"
)

// tenant returns a no-op job of one of so many tenants. Jobs of all contenders carry the label, so
// that it is no part of the difference.
func tenant(i, keys int) fsm.Spec { return noop(i).Label(tenantLabel, strconv.Itoa(i%keys)) }

// limits is P17: a drain behind gates that hardly bound it, by the number of keys. Ten keys have as
// many places as there are slots. Each of 1,000 keys has three, as a limit per customer would. Of
// 100,000 keys each has one row.
func limits(_ context.Context, b *bench) (*trial, error) {
	n := b.count(100_000)
	run := func(name string, keys int, gates ...engine.Gate) contender {
		return contender{name, func(ctx context.Context) (report.Sample, error) {
			return b.drainGated(ctx, "P17", n, func(i int) fsm.Spec { return tenant(i, keys) }, gates...)
		}}
	}
	places := func(n int) engine.Gate { return engine.Gate{Name: perTenant, Label: tenantLabel, Places: n} }
	return &trial{
		contenders: []contender{
			run("without", 10),
			run("10 keys", 10, places(max(1, b.workers/10))),
			run("1,000 keys", 1000, places(3)),
			run("100,000 keys", 100_000, places(3)),
		},
		checks: []report.Check{
			{Label: "10-keys", Of: "10 keys", Against: "without", By: report.Rate, AtLeast: 0.8},
			{Label: "1,000-keys", Of: "1,000 keys", Against: "without", By: report.Rate, AtLeast: 0.5},
			{Label: "100,000-keys", Of: "100,000 keys", Against: "without", By: report.Rate, AtLeast: 0.5},
		},
	}, nil
}

// exhausted is P18: 100,000 rows of a tenant whose places are all taken, for as long as the trial
// lasts, ahead of the rows of 1,000 others. The cost is the others', for client and server.
func exhausted(_ context.Context, b *bench) (*trial, error) {
	ahead, live := b.count(100_000), b.count(50_000)
	run := func(ahead int) func(context.Context) (report.Sample, error) {
		return func(ctx context.Context) (report.Sample, error) {
			return b.drainPast(ctx, "P18", ahead, live, func(i int) fsm.Spec { return tenant(i, 1000) })
		}
	}
	return &trial{
		contenders: []contender{{"without", run(0)}, {"ahead", run(ahead)}},
		checks: []report.Check{
			{Label: "rate", Of: "ahead", Against: "without", By: report.Rate, AtLeast: 1 / 1.1},
			{Label: "server", Of: "ahead", Against: "without", By: report.Server},
		},
	}, nil
}

// gated empties our database, and sets these gates.
func (b *bench) gated(ctx context.Context, gates ...engine.Gate) (*lab.Database, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	return db, errors.Join(ours.SetGates(ctx, db, gates...), b.lab.Checkpoint(ctx))
}

// drainGated is drainOurs with gates.
func (b *bench) drainGated(ctx context.Context, name string, n int, spec func(i int) fsm.Spec, gates ...engine.Gate) (report.Sample, error) {
	db, err := b.gated(ctx, gates...)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ours.Fill(ctx, db, n, spec), ours.Settle(ctx, db)); err != nil {
		return nil, err
	}
	o := ours.Options{Concurrency: b.workers}
	sample, err := b.measure(ctx, db, n, b.profile(name, ours.Work(db, n, o, noops)))
	return sample, errors.Join(err, ours.Check(ctx, db, n))
}

// exhaustedPlaces is how many jobs of the exhausted tenant hold its places.
const exhaustedPlaces = 3

// drainPast measures from the engine's start until all n rows behind the rows of a tenant have run.
// The first jobs of that tenant take its places, and keep them until the measurement is over.
func (b *bench) drainPast(ctx context.Context, name string, ahead, n int, spec func(i int) fsm.Spec) (report.Sample, error) {
	db, err := b.gated(ctx, engine.Gate{Name: perTenant, Label: tenantLabel, Places: exhaustedPlaces})
	if err != nil {
		return nil, err
	}
	full := func(int) fsm.Spec { return noop(hotOrder).Label(tenantLabel, "full") }
	if err := errors.Join(ours.Fill(ctx, db, ahead, full), ours.Fill(ctx, db, n, spec), ours.Settle(ctx, db)); err != nil {
		return nil, err
	}
	over, leave := lab.NewCountdown(n), make(chan struct{})
	ran := func(o ours.Order) {
		if o.N == hotOrder {
			<-leave
			return
		}
		over.Done(1)
	}
	return b.measure(ctx, db, n, b.profile(name, func(ctx context.Context) (func(context.Context) error, error) {
		defer close(leave)
		e, err := ours.Start(ctx, db, ours.Options{Concurrency: b.workers, Machines: []fsm.Definition{ours.NoopMachine(ran)}})
		if err != nil {
			return nil, err
		}
		return e.Close, over.Wait(ctx)
	}))
}
