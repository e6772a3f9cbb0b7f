package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// blockedGate is the gate behind which nothing can begin, and blockedLabel its label. Jobs that
// are measured have no such label.
const (
	blockedGate  = "blocked"
	blockedLabel = "account"
)

// obstacle is a reason for which the keys of blockedGate cannot begin.
type obstacle struct {
	name string
	gate engine.Gate // places and rates; with none, there are no keys
	by   func(ctx context.Context, e *ours.Engine, keys int) error
}

// obstacles are why 100,000 keys cannot begin. In the first one there is no key.
var obstacles = []obstacle{
	{name: "none"},
	{name: "closed", gate: engine.Gate{Places: 1}, by: func(ctx context.Context, e *ours.Engine, _ int) error {
		_, err := e.Admin().CloseGate(ctx, blockedGate, time.Time{})
		return err
	}},
	{name: "used up", gate: engine.Gate{TotalRate: engine.Rate{N: 1, Per: engine.MaxGatePer}}, by: nil},
	{name: "full", gate: engine.Gate{Places: 1, Run: true}, by: holders},
}

// holders has an instance of each key that has the key's place and waits for a signal.
func holders(ctx context.Context, e *ours.Engine, keys int) error {
	return ours.Insert(ctx, e, keys, func(i int) fsm.Spec {
		return ours.Waiter.New(ours.NewOrder(i)).Label(blockedLabel, strconv.Itoa(i))
	})
}

// blocked is P24: the time from an insert to its start, behind no gate and behind another gate,
// beside 100,000 keys of a gate that cannot begin, each with an instance in line.
func blocked(_ context.Context, b *bench) (*trial, error) {
	keys, n := b.count(100_000), b.count(100)
	t := &trial{}
	for _, gated := range []bool{false, true} {
		kind := "no gate"
		if gated {
			kind = "another gate"
		}
		for _, o := range obstacles {
			t.contenders = append(t.contenders, contender{kind + ", " + o.name, func(ctx context.Context) (report.Sample, error) {
				return b.startsBeside(ctx, o, keys, n, gated)
			}})
			if o.by != nil || o.gate != (engine.Gate{}) {
				t.checks = append(t.checks, report.Check{Label: kind + "-" + o.name + "-p99", Of: kind + ", " + o.name, Against: kind + ", none", By: report.P99, AtMost: 1.5})
			}
		}
	}
	t.notes = []string{"beside " + strconv.Itoa(keys) + " keys of a gate that is closed, whose total rate is used up, or whose places are taken by whole runs"}
	return t, nil
}

// startsBeside measures n inserts of one tenant, once all keys that cannot begin are in line.
func (b *bench) startsBeside(ctx context.Context, o obstacle, keys, n int, gated bool) (report.Sample, error) {
	other := engine.Gate{Name: perTenant, Label: tenantLabel, Places: 100}
	gates := []engine.Gate{other}
	if o.name != "none" {
		o.gate.Name, o.gate.Label = blockedGate, blockedLabel
		gates = append(gates, o.gate)
	}
	db, err := b.gated(ctx, gates...)
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	parked := lab.NewCountdown(keys)
	ran := func(order ours.Order) {
		if order.N != hotOrder {
			started <- time.Now()
		}
	}
	e, err := ours.Start(ctx, db, ours.Options{Concurrency: b.workers, Machines: []fsm.Definition{
		ours.NoopMachine(ran), ours.WaiterMachine(func() { parked.Done(1) }, func(ours.Order) {}),
	}})
	if err != nil {
		return nil, err
	}
	sample, err := func() (report.Sample, error) {
		if o.name != "none" {
			if o.by != nil {
				if err := o.by(ctx, e, keys); err != nil {
					return nil, err
				}
			}
			if o.gate.Run {
				if err := parked.Wait(ctx); err != nil {
					return nil, err
				}
			}
			behind := func(i int) fsm.Spec { return noop(hotOrder).Label(blockedLabel, strconv.Itoa(i)) }
			if err := ours.Insert(ctx, e, keys, behind); err != nil {
				return nil, err
			}
			if err := b.inLine(ctx, db); err != nil {
				return nil, err
			}
		}
		if err := ours.Settle(ctx, db); err != nil {
			return nil, err
		}
		return latencies(ctx, n, gap, func(ctx context.Context, i int) error {
			spec := noop(i)
			if gated {
				spec = tenant(i, 10)
			}
			_, err := e.Insert(ctx, spec)
			return err
		}, started)
	}()
	return sample, errors.Join(err, e.Close(ctx))
}

// inLine waits until no row stands in front of the gate any more: all have been put in line.
func (b *bench) inLine(ctx context.Context, db *lab.Database) error {
	for range 600 {
		n, err := db.Int(ctx, "SELECT count(*) FROM gendurable.gen_durable WHERE status = 'runnable' AND pick_lane = 0")
		if err != nil || n == 0 {
			return err
		}
		if err := lab.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("not all instances were put in line at gate %q within a minute", blockedGate)
}
