package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// keepings are what the history keeps in H1 and H2. "off again" shows what the noise of the
// machine is.
var keepings = []struct {
	name string
	keep fsm.Keep
}{{"off", fsm.KeepNothing}, {"on", fsm.KeepTransitions}, {"states", fsm.KeepStates}, {"off again", fsm.KeepNothing}}

// drainRecorded is H1: the jobs of P1, with and without a history.
func drainRecorded(_ context.Context, b *bench) (*trial, error) {
	return b.recorded(b.count(50_000), 1, noop, noops), nil
}

// chainRecorded is H2: the ten-step instances of P3, with and without a history.
func chainRecorded(_ context.Context, b *bench) (*trial, error) {
	return b.recorded(b.count(10_000), chainSteps, chain, func(ran func()) []fsm.Definition {
		return []fsm.Definition{ours.ChainMachine(chainSteps, ran)}
	}), nil
}

func (b *bench) recorded(instances, steps int, spec func(int) fsm.Spec, machines func(func()) []fsm.Definition) *trial {
	t := &trial{}
	rows := instances * steps
	for _, k := range keepings {
		t.contenders = append(t.contenders, contender{k.name, func(ctx context.Context) (report.Sample, error) {
			db, err := b.ours(ctx)
			if err != nil {
				return nil, err
			}
			if err := errors.Join(ours.Fill(ctx, db, instances, spec), ours.Settle(ctx, db), b.lab.Checkpoint(ctx)); err != nil {
				return nil, err
			}
			o := ours.Options{Concurrency: b.workers, Change: func(c *engine.Config) { c.History = k.keep }}
			sample, err := b.measure(ctx, db, rows, b.profile("H-"+k.name, ours.Work(db, rows, o, machines)))
			if err := errors.Join(err, ours.Check(ctx, db, instances)); err != nil {
				return nil, err
			}
			want := int64(0)
			if k.keep.Recorded() {
				want = int64(rows)
			}
			if n, err := db.Int(ctx, `SELECT count(*) FROM gendurable.history`); err != nil || n != want {
				return nil, errors.Join(err, fmt.Errorf("%d rows of history, want %d", n, want))
			}
			return sample, nil
		}})
		if k.name == "off" {
			continue
		}
		rate := report.Check{Label: k.name, Of: k.name, Against: "off", By: report.Rate}
		if k.name == "on" {
			rate.AtLeast = 0.85
		}
		t.checks = append(t.checks, rate, report.Check{Label: k.name + " server", Of: k.name, Against: "off", By: report.Server},
			report.Check{Label: k.name + " client", Of: k.name, Against: "off", By: report.Client},
			report.Check{Label: k.name + " WAL", Of: k.name, Against: "off", By: report.WAL})
	}
	return t
}
