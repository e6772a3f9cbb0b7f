package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/fsm"
)

// joinLatency is G2: the time from the return of the child whose end the parent still needs to the
// first line of the step that joins. Each parent has five children. At the barrier the other four
// have ended; under a policy, those that it does not need wait for a signal.
func joinLatency(_ context.Context, b *bench) (*trial, error) {
	n := b.count(200)
	t := &trial{notes: []string{fmt.Sprintf("%d parents of five children, one after the other", n)}}
	for _, c := range []struct {
		name   string
		needed int
		join   func(*fsm.ChildrenOutcome) *fsm.ChildrenOutcome
	}{
		{"barrier", 5, func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j }},
		{"quorum", 2, func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Quorum(2) }},
		{"race", 1, func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Race() }},
		{"cancels", 2, func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Quorum(2).CancelRest() }},
		{"stream", 1, func(j *fsm.ChildrenOutcome) *fsm.ChildrenOutcome { return j.Stream(10) }},
	} {
		t.contenders = append(t.contenders, contender{c.name, func(ctx context.Context) (report.Sample, error) { return b.joins(ctx, n, c.needed, c.join) }})
		if c.name != "barrier" {
			most := 1.1
			if c.name == "stream" { // which notes its portion before the step
				most = 0
			}
			t.checks = append(t.checks, report.Check{Label: c.name + "-p50", Of: c.name, Against: "barrier", By: report.P50, AtMost: most})
		}
	}
	return t, nil
}

// joins measures n parents, each of which needs so many of its children.
func (b *bench) joins(ctx context.Context, n, needed int, join func(*fsm.ChildrenOutcome) *fsm.ChildrenOutcome) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	running, release, joined := make(chan struct{}), make(chan struct{}), make(chan time.Time, 1)
	e, err := ours.Start(ctx, db, ours.Options{Machines: []fsm.Definition{
		ours.AssemblyMachine(5, needed, join, func() { joined <- time.Now() }),
		ours.VoteMachine(func(ctx context.Context) error {
			select {
			case running <- struct{}{}:
				<-release
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}),
	}})
	if err != nil {
		return nil, err
	}
	const warm = 5
	took := make([]time.Duration, 0, n)
	one := func(i int) error {
		if _, err := e.Insert(ctx, ours.Assembly.New(ours.NewOrder(i))); err != nil {
			return err
		}
		select {
		case <-running:
		case <-time.After(time.Minute):
			return fmt.Errorf("the last child of parent %d has not begun within a minute", i)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := lab.Sleep(ctx, gap()); err != nil { // the others end, or park
			return err
		}
		began := time.Now()
		release <- struct{}{}
		select {
		case at := <-joined:
			if i >= warm {
				took = append(took, at.Sub(began))
			}
			return nil
		case <-time.After(time.Minute):
			return fmt.Errorf("parent %d has not joined within a minute", i)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for i := range n + warm {
		if err := one(i); err != nil {
			return nil, errors.Join(err, e.Close(ctx))
		}
	}
	return quantiles(took), e.Close(ctx)
}
