package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// graphs is G1: a graph of 10,000 nodes in ten layers, in which each node behind the first layer
// waits for two, beside as many plain children of one parent, and beside the same graph in pieces
// of 100 nodes. The nodes do nothing. Rates are nodes per second, from the start of the engine to
// the durable end of the root; buffers are counted per node, of all tables and indexes together.
func graphs(_ context.Context, b *bench) (*trial, error) {
	nodes := max(ours.Layers, b.count(10_000)/ours.Layers*ours.Layers)
	small := max(ours.Layers, min(100, nodes/ours.Layers*ours.Layers))
	roots := max(1, nodes/small)
	fan := func(machine *fsm.Machine[ours.Order, ours.Result], define func(func()) fsm.Definition, parents, each int) func(context.Context) (report.Sample, error) {
		return func(ctx context.Context) (report.Sample, error) {
			db, err := b.ours(ctx)
			if err != nil {
				return nil, err
			}
			if err := errors.Join(b.lab.Checkpoint(ctx), ours.Fill(ctx, db, parents, func(int) fsm.Spec { return machine.New(ours.NewOrder(each)) }),
				ours.Settle(ctx, db)); err != nil {
				return nil, err
			}
			work := ours.Work(db, parents*(each+2), ours.Options{Concurrency: b.workers}, func(ran func()) []fsm.Definition {
				return append(noops(ran), define(ran))
			})
			sample, err := b.measureBuffers(ctx, db, parents*each, b.profile("G1", work))
			return sample, errors.Join(err, ours.Check(ctx, db, parents*(each+1)))
		}
	}
	return &trial{
		contenders: []contender{
			{"graph", fan(ours.Root, ours.RootMachine, 1, nodes)},
			{"children", fan(ours.Parent, ours.ParentMachine, 1, nodes)},
			{"small graphs", fan(ours.Root, ours.RootMachine, roots, small)},
		},
		checks: []report.Check{
			{Label: "children", Of: "graph", Against: "children", By: report.Rate, AtLeast: 0.6},
			{Label: "buffers", Of: "graph", Against: "small graphs", By: report.Buffers, AtMost: 1.1},
		},
		notes: []string{fmt.Sprintf("%d nodes with %d edges in %d layers; %d graphs of %d", nodes, ours.Edges(nodes), ours.Layers, roots, small)},
	}, nil
}

// measureBuffers measures work, and also how many buffers it touches per row.
func (b *bench) measureBuffers(ctx context.Context, db *lab.Database, rows int, do work) (report.Sample, error) {
	before, err := db.Buffers(ctx)
	if err != nil {
		return nil, err
	}
	sample, err := b.measure(ctx, db, rows, do)
	if err != nil {
		return nil, err
	}
	after, err := db.Buffers(ctx)
	sample[report.Buffers] = float64(after-before) / float64(rows)
	return sample, err
}
