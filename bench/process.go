package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// workerCommand as the first argument makes this program a worker: some trials need one in a
// separate process. It works on one or more schemas of one database until its standard input ends.
const workerCommand = "worker"

type workerFlags struct {
	system      string // ours or river
	url         string
	schemas     string // ours, separated by commas
	poll        time.Duration
	pollOnly    bool
	stock       bool // River with its own defaults instead of those of its benchmark
	concurrency int
	conns       int // of the pool; 0: as many as the system has where it runs alone
	queues      int // 0: queue default
	step        time.Duration
	retain      time.Duration // of ended instances; 0: the default
	report      bool          // print a line for each job, with the time when it started
	progress    bool          // print ten lines a second, with how many jobs have started
	tally       string        // path of the tally that says when to start, and counts the jobs
	seat        int           // in the tally
}

func (w *workerFlags) arguments() []string {
	return []string{workerCommand, "-system", w.system, "-url", w.url, "-schemas", w.schemas, "-poll", w.poll.String(),
		fmt.Sprintf("-poll-only=%t", w.pollOnly), fmt.Sprintf("-stock=%t", w.stock), "-concurrency", fmt.Sprint(w.concurrency),
		"-conns", fmt.Sprint(w.conns), "-queues", fmt.Sprint(w.queues), "-step", w.step.String(), "-retain", w.retain.String(),
		fmt.Sprintf("-report=%t", w.report), fmt.Sprintf("-progress=%t", w.progress), "-tally", w.tally, "-seat", fmt.Sprint(w.seat)}
}

func (w *workerFlags) parse(arguments []string) error {
	flags := flag.NewFlagSet(workerCommand, flag.ContinueOnError)
	flags.StringVar(&w.system, "system", "ours", "ours or river")
	flags.StringVar(&w.url, "url", "", "of the database")
	flags.StringVar(&w.schemas, "schemas", engine.DefaultSchema, "of ours, by comma")
	flags.DurationVar(&w.poll, "poll", 0, "interval of polling; 0: the default")
	flags.BoolVar(&w.pollOnly, "poll-only", false, "River without NOTIFY")
	flags.BoolVar(&w.stock, "stock", false, "River with its own defaults")
	flags.IntVar(&w.concurrency, "concurrency", 0, "steps at once; 0: the default")
	flags.IntVar(&w.conns, "conns", 0, "connections of the pool; 0: the default")
	flags.IntVar(&w.queues, "queues", 0, "how many queues; 0: one")
	flags.DurationVar(&w.step, "step", 0, "how long each job sleeps")
	flags.DurationVar(&w.retain, "retain", 0, "of what has ended; 0: the default")
	flags.BoolVar(&w.report, "report", false, "a line for each job")
	flags.BoolVar(&w.progress, "progress", false, "ten lines a second, with how many jobs have started")
	flags.StringVar(&w.tally, "tally", "", "file of a tally")
	flags.IntVar(&w.seat, "seat", 0, "in the tally")
	return flags.Parse(arguments)
}

// workerMain is the main function of a worker.
func workerMain(ctx context.Context, arguments []string) error {
	var w workerFlags
	if err := w.parse(arguments); err != nil {
		return err
	}
	if w.tally != "" {
		return w.takeSeat(ctx)
	}
	ready := make(chan struct{}) // closed behind that line, which is the first
	var count atomic.Int64
	ran := func(ours.Order) { count.Add(1) }
	if w.progress {
		go func() {
			<-ready
			for range time.Tick(100 * time.Millisecond) {
				fmt.Printf("%d %d\n", count.Load(), time.Now().UnixNano())
			}
		}()
	}
	if w.report {
		lines := make(chan string, 1000)
		defer close(lines)
		go func() {
			<-ready
			for line := range lines {
				fmt.Print(line)
			}
		}()
		ran = func(o ours.Order) { lines <- fmt.Sprintf("%d %d\n", o.N, time.Now().UnixNano()) }
	}
	end, err := w.start(ctx, ran, nil)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	close(ready)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, end(context.WithoutCancel(ctx)))
}

// takeSeat is workerMain for a worker of a fleet: it starts when the tally opens.
func (w *workerFlags) takeSeat(ctx context.Context) error {
	tally, err := lab.OpenTally(w.tally)
	if err != nil {
		return err
	}
	seat := tally.Seat(w.seat)
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		seat.Release()
		close(over)
	}()
	fmt.Println("ready")
	for !tally.Opened() {
		select {
		case <-over:
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	step := func() {}
	if w.step > 0 {
		step = func() { time.Sleep(w.step) }
	}
	end, err := w.start(ctx, func(ours.Order) { seat.Run(step) }, seat.Wire.Tap)
	if err != nil {
		return err
	}
	seat.Started()
	<-over
	return end(context.WithoutCancel(ctx))
}

// pool opens a pool of so many connections unless the worker was told another number; 0 is
// pgxpool's default. tap may change its configuration.
func (w *workerFlags) pool(ctx context.Context, conns int, tap func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(w.url)
	if err != nil {
		return nil, err
	}
	if w.conns > 0 {
		conns = w.conns
	}
	if conns > 0 {
		config.MaxConns = int32(conns) //nolint:gosec // a handful
	}
	if tap != nil {
		tap(config)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// start starts the system and returns a function that stops it. tap may change the pools'
// configuration; nil does not.
func (w *workerFlags) start(ctx context.Context, ran func(ours.Order), tap func(*pgxpool.Config)) (func(context.Context) error, error) {
	if w.system == "river" {
		o := peers.RiverTuned
		if w.stock {
			o = peers.RiverDefault
		}
		o.PollOnly, o.Retain, o.Ran, o.Queues = w.pollOnly, w.retain, ran, w.queues
		if w.poll > 0 {
			o.Poll = w.poll
		}
		if w.concurrency > 0 {
			o.Workers = w.concurrency
		}
		pool, err := w.pool(ctx, o.Conns, tap)
		if err != nil {
			return nil, err
		}
		r, err := peers.OverPool(pool, o)
		if err != nil {
			return nil, err
		}
		return r.Close, r.Client.Start(ctx)
	}
	var engines []*ours.Engine
	end := func(ctx context.Context) error {
		var err error
		for _, e := range engines {
			err = errors.Join(err, e.Close(ctx))
		}
		return err
	}
	for _, schema := range strings.Split(w.schemas, ",") {
		pool, err := w.pool(ctx, 0, tap)
		if err != nil {
			return nil, errors.Join(err, end(ctx))
		}
		e, err := ours.OverPool(pool, ours.Options{Concurrency: w.concurrency, Machines: []fsm.Definition{ours.NoopMachine(ran)},
			Change: func(c *engine.Config) {
				c.Schema, c.RetainDone = schema, w.retain
				if w.poll > 0 {
					q := c.Queues["default"]
					q.PollMin, q.PollMax = w.poll, w.poll
					c.Queues["default"] = q
				}
				for i := 1; i < w.queues; i++ {
					c.Queues["queue"+strconv.Itoa(i)] = engine.Queue{Concurrency: w.concurrency}
				}
			}})
		if err != nil {
			return nil, errors.Join(err, end(ctx))
		}
		if err := e.Start(ctx); err != nil {
			return nil, errors.Join(err, end(ctx))
		}
		engines = append(engines, e)
	}
	return end, nil
}

// process is a worker as its parent sees it.
type process struct {
	cmd     *exec.Cmd
	input   io.Closer
	started chan arrival // of jobs, if the worker reports them; closed when it ends
}

// arrival says when a job has started, or how many have.
type arrival struct {
	n  int
	at time.Time
}

// launch starts a worker and waits until it works; one with a tally, until it waits for that.
func (w *workerFlags) launch(ctx context.Context) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, w.arguments()...)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	p := &process{cmd: cmd, input: input, started: make(chan arrival, 1000)}
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "ready" {
		return nil, errors.Join(fmt.Errorf("the worker said %q", lines.Text()), p.stop())
	}
	go func() {
		defer close(p.started)
		for lines.Scan() {
			var a arrival
			var nanos int64
			if _, err := fmt.Sscan(lines.Text(), &a.n, &nanos); err == nil {
				a.at = time.Unix(0, nanos)
				p.started <- a
			}
		}
	}()
	return p, nil
}

// stop ends the worker and waits for it.
func (p *process) stop() error {
	err := p.input.Close()
	return errors.Join(err, p.cmd.Wait())
}
