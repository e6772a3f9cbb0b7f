package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
)

// target is one line of the list of targets.
type target struct {
	id, title string
	open      func(ctx context.Context, b *bench) (*trial, error)
}

// trial is a prepared target. Its contenders run in turns, and are then compared. Each round begins
// with another one, A B C, B C A, C A B: a side that always came last would gain or lose by the
// caches, dead rows and checkpoint that the others leave, as much as a tenth on some machines.
type trial struct {
	contenders []contender
	checks     []report.Check
	notes      []string
	rounds     int // 0: those of the bench
}

type contender struct {
	name string
	run  func(ctx context.Context) (report.Sample, error)
}

// bench is one run of all targets.
type bench struct {
	lab      *lab.Lab
	scale    float64 // factor of all counts
	rounds   int
	workers  int           // steps at once, the only setting that a user makes; by default as many as River's workers
	full     bool          // P8 with 10 M rows
	profiles string        // directory of CPU profiles of our side; "": none
	account  bool          // print after each target where the server's time went
	citus    string        // bin directory of a Postgres with Citus, for P20
	fleets   []int         // numbers of processes of P22; P23 has the last
	most     time.Duration // of a target, after which it begins no further round; 0: no limit
	quick    bool          // print one table of all targets
	out      io.Writer

	databases map[string]*lab.Database
	profiled  int
	opened    []func(context.Context) error // closes what single targets have opened
}

// count scales a number of rows, and leaves enough to measure something.
func (b *bench) count(n int) int { return max(int(float64(n)*b.scale), min(n, 20)) }

// run measures one target.
func (b *bench) run(ctx context.Context, t target) (report.Result, error) {
	r := report.Result{ID: t.id, Title: t.title}
	began := time.Now()
	trial, err := t.open(ctx, b)
	if err != nil {
		return r, fmt.Errorf("%s: prepare: %w", t.id, err)
	}
	for _, c := range trial.contenders {
		r.Series = append(r.Series, report.Series{Contender: c.name})
	}
	rounds := b.rounds
	if trial.rounds > 0 {
		rounds = min(rounds, trial.rounds)
	}
	for round := range rounds {
		if took := time.Since(began); b.most > 0 && round > 0 && took+took/time.Duration(round) > b.most {
			break
		}
		for turn := range trial.contenders {
			i := (round + turn) % len(trial.contenders)
			c := trial.contenders[i]
			sample, err := b.round(ctx, c)
			if err != nil {
				return r, fmt.Errorf("%s: %s: %w", t.id, c.name, err)
			}
			r.Series[i].Samples = append(r.Series[i].Samples, sample)
		}
	}
	r.Judge(trial.checks)
	r.Notes = trial.notes
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// roundLimit is far beyond any round that goes well.
const roundLimit = 5 * time.Minute

func (b *bench) round(ctx context.Context, c contender) (report.Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("not over within %s", roundLimit))
	defer cancel()
	return c.run(ctx)
}

// database returns the contender's database. The first call makes it; each call empties it.
func (b *bench) database(ctx context.Context, name string, migrate, empty func(context.Context, *lab.Database) error) (*lab.Database, error) {
	db := b.databases[name]
	if db == nil {
		var err error
		if db, err = b.lab.Database(ctx, name); err != nil {
			return nil, err
		}
		if err := migrate(ctx, db); err != nil {
			return nil, fmt.Errorf("migrate database %s: %w", name, err)
		}
		b.databases[name] = db
	}
	return db, empty(ctx, db)
}

// ours returns a database of gendurable with empty tables.
func (b *bench) ours(ctx context.Context) (*lab.Database, error) {
	return b.database(ctx, "ours", ours.Migrate, ours.Clear)
}

func (b *bench) river(ctx context.Context) (*lab.Database, error) {
	return b.database(ctx, "river", peers.RiverMigrate, peers.RiverClear)
}

// work is the measured part of a contender. It returns a function that ends what it started, which
// is not measured.
type work func(ctx context.Context) (end func(context.Context) error, err error)

// measure returns the time and the cost of the work, per row.
func (b *bench) measure(ctx context.Context, db *lab.Database, rows int, do work) (report.Sample, error) {
	updates, heapOnly, err := db.Updates(ctx)
	if err != nil {
		return nil, err
	}
	meter, err := b.lab.Start(ctx)
	if err != nil {
		return nil, err
	}
	end, err := do(ctx)
	cost, stopped := meter.Stop(ctx)
	if end != nil {
		stopped = errors.Join(stopped, end(ctx))
	}
	if err := errors.Join(err, stopped, db.Quiet(ctx)); err != nil {
		return nil, err
	}
	sample := perRow(cost, rows)
	allUpdates, allHeapOnly, err := db.Updates(ctx)
	if allUpdates > updates {
		sample[report.HOT] = float64(allHeapOnly-heapOnly) / float64(allUpdates-updates)
	}
	return sample, err
}

// perRow returns a cost per row.
func perRow(cost lab.Cost, rows int) report.Sample {
	n := float64(rows)
	sample := report.Sample{
		report.Rate:   n / cost.Took.Seconds(),
		report.Client: cost.Client.Seconds() * 1e6 / n,
		report.WAL:    float64(cost.WAL) / n,
	}
	if cost.Server > 0 {
		sample[report.Server] = cost.Server.Seconds() * 1e6 / n
	}
	if cost.Instructions > 0 {
		sample[report.Kilo] = float64(cost.Instructions) / 1e3 / n
	}
	if cost.Idle > 0 {
		sample[report.Idle] = cost.Idle
	}
	return sample
}

// profile wraps our side's work. Each run's profile is a separate file; go tool pprof takes them
// together.
func (b *bench) profile(name string, do work) work {
	if b.profiles == "" {
		return do
	}
	return func(ctx context.Context) (func(context.Context) error, error) {
		if err := os.MkdirAll(b.profiles, 0o755); err != nil { //nolint:gosec // anyone may read them
			return nil, err
		}
		b.profiled++
		file, err := os.Create(filepath.Join(b.profiles, fmt.Sprintf("%s-%d.pprof", name, b.profiled)))
		if err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		end, err := do(ctx)
		pprof.StopCPUProfile()
		return end, errors.Join(err, file.Close())
	}
}

// chosen returns the targets of these ids, separated by commas; if there are none, all that every
// machine can measure. P22 are all of its parts, P22-0 is one.
func chosen(ids string) ([]target, error) {
	if ids == "" {
		return targets, nil
	}
	var out []target
	for id := range strings.SplitSeq(ids, ",") {
		before := len(out)
		for _, t := range slices.Concat(targets, apart) {
			if t.id == id || strings.HasPrefix(t.id, id+"-") {
				out = append(out, t)
			}
		}
		if len(out) == before {
			return nil, fmt.Errorf("there is no target %q", id)
		}
	}
	return out, nil
}
