// Command bench measures gendurable beside its peers and beside bare Postgres: each target of the list as one line, with the median of
// its ratios and their range.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/report"
)

// targets in the order of the list.
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
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) > 0 && arguments[0] == workerCommand {
		return workerMain(ctx, arguments[1:])
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	b := &bench{out: os.Stdout, databases: map[string]*lab.Database{}}
	only := flags.String("only", "", "targets to measure, e.g. `P1,P3`; all if empty")
	file := flags.String("json", "", "`file` to write the results to")
	flags.BoolVar(&b.full, "full", false, "P8 at 10 M rows instead of 1 M")
	flags.IntVar(&b.rounds, "rounds", 5, "rounds of each contender")
	flags.Float64Var(&b.scale, "scale", 1, "factor on all counts, for a quick look")
	flags.StringVar(&b.profiles, "cpuprofile", "", "`directory` for CPU profiles of our side")
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	var ids []string
	if *only != "" {
		ids = strings.Split(*only, ",")
	}
	list, err := chosen(ids)
	if err != nil {
		return err
	}
	results, err := b.all(ctx, list)
	if *file != "" && results != nil {
		raw, wrong := json.MarshalIndent(results, "", "\t")
		err = errors.Join(err, wrong, os.WriteFile(*file, append(raw, '\n'), 0o644)) //nolint:gosec // to be read by anyone
	}
	return err
}

// document is what the JSON file holds.
type document struct {
	Began    time.Time        `json:"began"`
	Machine  string           `json:"machine"`
	Settings []lab.Setting    `json:"settings"`
	Results  []*report.Result `json:"results"`
}

// all measures the targets on one server and prints each as it comes, and at last one line for each.
func (b *bench) all(ctx context.Context, list []target) (d *document, err error) {
	if b.lab, err = lab.Open(ctx, os.Getenv("DATABASE_URL")); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.lab.Close(context.WithoutCancel(ctx))) }()
	d = &document{Began: time.Now().UTC(), Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.Version())}
	if d.Settings, err = b.lab.Settings(ctx); err != nil {
		return nil, err
	}
	fmt.Fprint(b.out, d.Machine)
	for _, s := range d.Settings {
		fmt.Fprintf(b.out, ", %s %s", s.Name, s.Value)
	}
	fmt.Fprintf(b.out, "\nmedians of %d interleaved rounds, with the least and the greatest ratio\n", b.rounds)
	for _, t := range list {
		result, err := b.run(ctx, t)
		if err != nil {
			return d, err
		}
		d.Results = append(d.Results, &result)
		fmt.Fprintf(b.out, "\n%s  %s  (%.0f s)\n%s", t.id, t.title, result.Seconds, result.Table())
		for _, note := range result.Notes {
			fmt.Fprintln(b.out, "  "+note)
		}
		fmt.Fprintln(b.out, result.Line())
	}
	fmt.Fprintln(b.out)
	for _, r := range d.Results {
		fmt.Fprintln(b.out, r.Line())
	}
	return d, nil
}
