package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/engine"
)

// A worker of a fleet is as small as those that many hosts run.
const (
	fleetSlots = 20
	fleetConns = 4
)

const (
	// warmJobs is how many jobs a connection's share of the backlog is before the steady part begins:
	// enough that nearly all connections have planned nearly all statements.
	warmJobs = 100
	// restJobs is how many jobs per slot are left when the steady part ends, so that no process runs
	// out of work before.
	restJobs = 5
	// steadyJobs is how many jobs the steady part has, unless their steps alone would take all slots
	// longer than steadySpan.
	steadyJobs = 20_000
	steadySpan = 4 * time.Second
	// steadyLeast is how many jobs per slot it has at least, also where all counts are scaled down:
	// slots that have waited together for the steady part to begin take some jobs to fall out of step.
	steadyLeast = 10
	// slotsBusy is the share of their time that slots can spend in steps at best: timers are late, and
	// each job needs a moment around its step.
	slotsBusy = 0.9
)

// fleetSizes are the numbers of processes that P22 measures.
var fleetSizes = []int{1, 4, 16, 48}

// parseFleets reads numbers of processes, by comma.
func (b *bench) parseFleets(text string) error {
	b.fleets = nil
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || len(b.fleets) > 0 && n <= b.fleets[len(b.fleets)-1] {
			return errors.New("not ascending numbers of processes, by comma")
		}
		b.fleets = append(b.fleets, n)
	}
	return nil
}

// large is the number of processes above which a fleet has the targets of large ones.
const large = 16

// fleets is P22: fleets of small workers, each a separate process, drain a backlog whose jobs sleep
// for the time step. The first part of the backlog pays for what each connection does once. What a
// connection's start costs follows from that, and from the cost of the steady part behind it.
func fleets(step time.Duration) func(context.Context, *bench) (*trial, error) {
	return func(_ context.Context, b *bench) (*trial, error) {
		t := &trial{notes: []string{"rates and costs are those of the steady part; what a connection's start costs on top is in start ms/conn, with the fork of its backend"}}
		for _, n := range b.fleets {
			rate, cpu := 1.2, 0.8
			if n > large {
				rate, cpu = 1, 1
			}
			b.compete(t, b.fleet(n, fleetSlots, step), n, rate, cpu)
		}
		if first, last := b.fleets[0], b.fleets[len(b.fleets)-1]; first < last {
			t.checks = append(t.checks, report.Check{Label: fmt.Sprintf("cpu-%d-of-%d", last, first),
				Of: fleetName("ours", last), Against: fleetName("ours", first), By: report.Server, AtMost: 1.5})
		}
		return t, nil
	}
}

// compete adds a fleet of each side to a trial, by the number that tells it from others, with the
// least rate of River's and the most of its server CPU.
func (b *bench) compete(t *trial, f fleet, n int, rate, cpu float64) {
	for _, s := range b.sides() {
		t.contenders = append(t.contenders, contender{fleetName(s.name, n), func(ctx context.Context) (report.Sample, error) {
			sample, without, err := b.drainFleet(ctx, s, f)
			if without > 0 {
				t.notes = append(t.notes, fmt.Sprintf("%s: when a steady part began, %d processes had ended no job", fleetName(s.name, n), without))
			}
			return sample, err
		}})
	}
	at := strconv.Itoa(n) + "-"
	t.checks = append(t.checks,
		report.Check{Label: at + "rate", Of: fleetName("ours", n), Against: fleetName("river", n), By: report.Rate, AtLeast: rate, Limit: f.limit()},
		report.Check{Label: at + "cpu", Of: fleetName("ours", n), Against: fleetName("river", n), By: report.Server, AtMost: cpu})
}

// workerSizes are the numbers of slots that W1 measures.
var workerSizes = []int{10, 50, 500}

// workers is W1: single workers of several sizes drain a backlog of jobs that sleep for 2 ms.
func workers(_ context.Context, b *bench) (*trial, error) {
	t := &trial{notes: []string{"one process each, by its number of slots, with a pool of 4 connections"}}
	for _, slots := range workerSizes {
		b.compete(t, b.fleet(1, slots, 2*time.Millisecond), slots, 1.2, 0.8)
	}
	return t, nil
}

func fleetName(side string, processes int) string { return side + ", " + strconv.Itoa(processes) }

// fleet is a number of workers and their backlog, in three parts.
type fleet struct {
	processes, slots   int
	step               time.Duration
	warm, steady, rest int // jobs
}

func (b *bench) fleet(processes, slots int, step time.Duration) fleet {
	f := fleet{processes: processes, slots: slots, step: step, warm: warmJobs * fleetConns * processes, rest: restJobs * slots * processes}
	f.steady = steadyJobs
	if step > 0 {
		f.steady = min(f.steady, int(steadySpan/step)*slots*processes)
	}
	f.steady = max(b.count(f.steady), steadyLeast*slots*processes)
	return f
}

// limit is the rate above which no contender gets, as all slots are in steps; 0 if there is none.
func (f fleet) limit() float64 {
	if f.step == 0 {
		return 0
	}
	return slotsBusy * float64(f.processes*f.slots) / f.step.Seconds()
}

// side is a system whose workers have separate processes.
type side struct {
	name     string
	database func(ctx context.Context) (*lab.Database, error)
	fill     func(ctx context.Context, db *lab.Database, n int) error // and brings the table into a steady state
	ended    func(ctx context.Context, db *lab.Database) (int64, error)
}

func (b *bench) sides() []side {
	return []side{
		{
			name: "ours", database: b.ours, ended: ours.Ended,
			fill: func(ctx context.Context, db *lab.Database, n int) error {
				return errors.Join(ours.Fill(ctx, db, n, noop), ours.Settle(ctx, db))
			},
		},
		{
			name: "river", database: b.river, ended: peers.RiverEnded,
			fill: func(ctx context.Context, db *lab.Database, n int) error {
				return errors.Join(peers.RiverFill(ctx, db, n), peers.RiverSettle(ctx, db))
			},
		},
	}
}

// drainFleet measures a fleet. It also returns how many processes had ended no job when the steady
// part began.
func (b *bench) drainFleet(ctx context.Context, s side, f fleet) (sample report.Sample, without int, err error) {
	db, err := s.database(ctx)
	if err != nil {
		return nil, 0, err
	}
	all := f.warm + f.steady + f.rest
	if err := errors.Join(b.lab.Checkpoint(ctx), s.fill(ctx, db, all)); err != nil {
		return nil, 0, err
	}
	c, err := launchCrew(ctx, f.processes, workerFlags{system: s.name, url: db.URL, schemas: engine.DefaultSchema, concurrency: f.slots, conns: fleetConns, step: f.step})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()

	part := func(to int) (lab.Cost, lab.Traffic, error) {
		meter, err := b.lab.Start(ctx, c.pids()...)
		if err != nil {
			return lab.Cost{}, lab.Traffic{}, err
		}
		before, counting := c.tally.Traffic(), db.Used()
		c.tally.Open(to)
		err = c.durable(ctx, to, func(ctx context.Context) (int64, error) { return s.ended(ctx, db) })
		cost, stopped := meter.Stop(ctx)
		cost.Server -= db.Used() - counting // which counted what is stored
		return cost, c.tally.Traffic().Minus(before), errors.Join(err, stopped)
	}
	start, _, err := part(f.warm)
	if err != nil {
		return nil, 0, err
	}
	_, without = c.tally.Ended()
	cost, traffic, err := part(f.warm + f.steady)
	if err != nil {
		return nil, 0, err
	}
	sample = perRow(cost, f.steady)
	sample[report.Transactions] = float64(traffic.Transactions) / float64(f.steady)
	if cost.Server > 0 {
		warm := cost.Server.Seconds() * float64(f.warm) / float64(f.steady)
		sample[report.Startup] = (start.Server.Seconds() - warm) * 1000 / float64(f.processes*fleetConns)
	}
	c.tally.Open(math.MaxInt64)
	if err := c.durable(ctx, all, func(ctx context.Context) (int64, error) { return s.ended(ctx, db) }); err != nil {
		return nil, 0, err
	}
	return sample, without, errors.Join(c.stop(), db.Quiet(ctx))
}

// crew are the worker processes of a fleet, with the tally that they share.
type crew struct {
	tally   *lab.Tally
	workers []*process
	stopped bool
}

// launchCrew starts so many workers, which wait until the tally opens.
func launchCrew(ctx context.Context, n int, w workerFlags) (*crew, error) {
	tally, err := lab.NewTally(n)
	if err != nil {
		return nil, err
	}
	c := &crew{tally: tally, workers: make([]*process, n)}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		w := w
		w.tally, w.seat = tally.Path, i
		all.Go(func() { c.workers[i], errs[i] = w.launch(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *crew) pids() (pids []int) {
	for _, w := range c.workers {
		pids = append(pids, w.cmd.Process.Pid)
	}
	return pids
}

// durable waits until n jobs have ended, and until the database has their ends.
func (c *crew) durable(ctx context.Context, n int, stored func(context.Context) (int64, error)) error {
	if err := c.wait(ctx, func() bool { ended, _ := c.tally.Ended(); return ended >= n }); err != nil {
		ended, without := c.tally.Ended()
		return fmt.Errorf("%d of %d jobs ended, %d of %d processes ended none: %w", ended, n, without, len(c.workers), err)
	}
	for {
		have, err := stored(ctx)
		if err != nil {
			return err
		}
		if have >= int64(n) {
			return nil
		}
		if err := lab.Sleep(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("the ends of %d of %d jobs are stored: %w", have, n, err)
		}
	}
}

// wait waits for a condition, as long as all workers live.
func (c *crew) wait(ctx context.Context, over func() bool) error {
	for !over() {
		if err := lab.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
		for i, w := range c.workers {
			select {
			case _, works := <-w.started:
				if !works {
					return fmt.Errorf("worker %d has ended", i)
				}
			default:
			}
		}
	}
	return nil
}

// stop stops all workers at once.
func (c *crew) stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	errs := make([]error, len(c.workers))
	var all sync.WaitGroup
	for i, w := range c.workers {
		if w != nil {
			all.Go(func() { errs[i] = w.stop() })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// close stops the workers if they still work, and removes the tally.
func (c *crew) close() error {
	return errors.Join(c.stop(), c.tally.Close())
}
