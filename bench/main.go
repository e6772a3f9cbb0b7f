// Command bench measures gendurable beside its peers and beside bare Postgres. It prints each
// target of the list as one line, with the median of its ratios and their range.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// targets has the targets in the order of the list.
var targets = []target{
	{"P1", "drain no-op jobs, only concurrency set", drainNoops},
	{"P2", "default settings against the best-tuned", drainTuned},
	{"P3", "instances of ten steps", runChains},
	{"P4", "bulk insert", insertBulk},
	{"P5", "insert to start, idle, same process", startLatency},
	{"P6", "one instance alone, per step", stepLatency},
	{"P7", "signal to woken step, same process", signalLatency},
	{"P8", "pick of 100 on a large table and on a small one", pickSize},
	{"P9", "one partition key's backlog ahead of other keys", hotKey},
	{"P10", "rows that cannot run ahead of live work", deadRows},
	{"P11", "idle with ten queues, a second", idleQueues},
	{"P12", "fan-out, children, join", fanOut},
	{"P15", "round trips of a batch of steps", roundTrips},
	{"P16", "insert in one process, start in another", crossing},
	{"P17", "drain behind a gate that hardly bounds it, beside none", limits},
	{"P18", "a full tenant's backlog ahead of other tenants", exhausted},
	{"P24", "insert to start beside 100,000 keys that cannot begin", blocked},
	{"P22-0", "fleets of small workers, jobs that do nothing", fleets(0)},
	{"P22-2", "fleets of small workers, jobs of 2 ms", fleets(2 * time.Millisecond)},
	{"P22-10", "fleets of small workers, jobs of 10 ms", fleets(10 * time.Millisecond)},
	{"W1", "single workers by their slots, jobs of 2 ms", workers},
	{"P23", "an idle fleet, ten queues a process", idleFleet},
	{"G1", "a graph of nodes that wait for two, beside children that wait for none", graphs},
	{"G2", "last needed end to joining step, by policy and at the barrier", joinLatency},
	{"L1", "drain under row locks, beside claim and commit", drainLocked},
	{"B1", "drain by a step for many instances, beside one for each", drainBatches},
	{"D1", "drain no-op jobs over a network, by distance and concurrency", drainFar},
	{"D2", "drain no-op jobs 5 ms away, by connections", poolFar},
	{"D3", "insert to start over a network", startFar},
	{"H1", "no-op jobs with a history", drainRecorded},
	{"H2", "instances of ten steps with a history", chainRecorded},
}

// apart are targets that need what few machines have. They run if they are asked for.
var apart = []target{
	{"P20", "a schema that Citus distributes, beside a plain one", onCitus},
}

// defaultWorkers is as many as River's workers.
const defaultWorkers = 1000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program: it measures the targets, or runs the command that comes first.
func run(ctx context.Context, arguments []string) error {
	command := ""
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
		command, arguments = arguments[0], arguments[1:]
	}
	switch command {
	case workerCommand:
		return workerMain(ctx, arguments)
	case "chart":
		if len(arguments) != 2 {
			return errors.New("usage: bench chart results.json directory")
		}
		return draw(arguments[0], arguments[1])
	case "compare":
		if len(arguments) != 2 {
			return errors.New("usage: bench compare before.json after.json")
		}
		text, err := compare(arguments[0], arguments[1])
		fmt.Print(text)
		return err
	case "", "endurance":
	default:
		return fmt.Errorf("there is no command %q; there are endurance, chart and compare", command)
	}
	flags := flag.NewFlagSet("bench "+command, flag.ContinueOnError)
	b := &bench{out: os.Stdout, fleets: fleetSizes}
	file := flags.String("json", "", "`file` to write the results to")
	flags.Float64Var(&b.scale, "scale", 1, "factor on all counts, for a quick look")
	flags.StringVar(&b.profiles, "cpuprofile", "", "`directory` for CPU profiles of our side")
	flags.BoolVar(&b.account, "statements", false, "show which statements cost the server most, which itself costs some speed")
	only := flags.String("only", "", "targets to measure, e.g. `P1,P3`; all if empty")
	flags.BoolVar(&b.full, "full", false, "P8 at 10 M rows instead of 1 M")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds of each contender")
	flags.IntVar(&b.workers, "concurrency", defaultWorkers, "steps at once in our engine where throughput is measured")
	flags.StringVar(&b.citus, "citus", "", "bin `directory` of a Postgres that has Citus, for P20")
	flags.Func("processes", "`numbers` of processes of P22 in ascending order, e.g. 4,16; P23 has the last", b.parseFleets)
	quick := flags.Bool("quick", false, "a few targets with few rows and one table, in three minutes")
	minutes := flags.Float64("minutes", 30, "of endurance: how long the steady load lasts; the rest takes as long again")
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *quick {
		*only = b.quickly(flags, *only)
	}
	var d *document
	var err error
	if command == "endurance" {
		if err := enduring(*only); err != nil {
			return err
		}
		d, err = b.endure(ctx, *minutes, *only)
	} else {
		var list []target
		if list, err = chosen(*only); err != nil {
			return err
		}
		d, err = b.all(ctx, list)
	}
	if *file != "" && d != nil {
		err = errors.Join(err, d.write(*file))
	}
	return err
}

// all measures the targets on one server, prints each when it is done, and at last one line for
// each.
func (b *bench) all(ctx context.Context, list []target) (d *document, err error) {
	if d, err = b.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	fmt.Fprintf(b.out, "medians of %s%d interleaved rounds, with the least and the greatest ratio\n", b.upTo(), b.rounds)
	for _, t := range list {
		result, err := b.run(ctx, t)
		if err != nil {
			return d, err
		}
		b.print(d, result)
		if b.account {
			account, err := b.lab.Account(ctx)
			if err != nil {
				return d, err
			}
			fmt.Fprint(b.out, account)
		}
	}
	fmt.Fprintln(b.out)
	if b.quick {
		fmt.Fprintln(b.out, d.brief())
	}
	for _, r := range d.Results {
		fmt.Fprintln(b.out, r.Line())
	}
	return d, nil
}

// upTo says that rounds may be fewer.
func (b *bench) upTo() string {
	if b.most > 0 {
		return "at most "
	}
	return ""
}
