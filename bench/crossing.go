package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// crossing is P16: a job that this process inserts starts in another process, which is idle. The
// time is from before the insert to the first line of the step, both by the machine's clock.
func crossing(_ context.Context, b *bench) (*trial, error) {
	n := b.count(60)
	return &trial{
		rounds: 2,
		contenders: []contender{
			{"ours", b.crossIdle},
			{"ours, poll 20 ms", func(ctx context.Context) (report.Sample, error) {
				return b.crossOurs(ctx, n, 20*time.Millisecond)
			}},
			{"river, poll 20 ms", func(ctx context.Context) (report.Sample, error) {
				return b.crossRiver(ctx, n, workerFlags{system: "river", poll: 20 * time.Millisecond, pollOnly: true, report: true})
			}},
			{"river, NOTIFY", func(ctx context.Context) (report.Sample, error) {
				return b.crossRiver(ctx, n, workerFlags{system: "river", poll: time.Second, report: true})
			}},
		},
		checks: []report.Check{
			{Label: "p50-ms", Of: "ours", By: report.P50, AtMost: 600},
			{Label: "p99-ms", Of: "ours", By: report.P99, AtMost: 1100},
			{Label: "river-at-20ms", Of: "ours, poll 20 ms", Against: "river, poll 20 ms", By: report.P50, AtMost: 1},
			{Label: "river-notify", Of: "ours, poll 20 ms", Against: "river, NOTIFY", By: report.P50},
		},
	}, nil
}

const (
	// crossSchemas is how many idle engines one process has. There are several, since an engine is
	// idle only seconds after its last job.
	crossSchemas = 8
	crossJobs    = 3
	// quiet is how long an engine needs to poll as slowly as it ever does.
	quiet = 2500 * time.Millisecond
)

// crossIdle waits before each job until the engine that will find the job polls slowly.
func (b *bench) crossIdle(ctx context.Context) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	few := min(b.scale, 1)
	schemas, jobs := make([]string, max(2, int(crossSchemas*few))), max(1, int(crossJobs*few))
	for i := range schemas {
		schemas[i] = "gendurable_" + strconv.Itoa(i)
		if err := ours.MigrateSchema(ctx, db, schemas[i]); err != nil {
			return nil, err
		}
	}
	w := workerFlags{system: "ours", url: db.URL, schemas: strings.Join(schemas, ","), report: true}
	p, err := w.launch(ctx)
	if err != nil {
		return nil, err
	}
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		began = map[int]time.Time{}
		errs  = make([]error, len(schemas))
	)
	for i, schema := range schemas {
		all.Go(func() {
			errs[i] = func() error {
				e, err := ours.Client(ctx, db, func(c *engine.Config) { c.Schema = schema })
				if err != nil {
					return err
				}
				for j := range jobs {
					if err := lab.Sleep(ctx, quiet+rand.N(time.Second)); err != nil { //nolint:gosec // no secret
						return errors.Join(err, e.Close(ctx))
					}
					n := i*jobs + j
					mu.Lock()
					began[n] = time.Now()
					mu.Unlock()
					if _, err := e.Insert(ctx, noop(n)); err != nil {
						return errors.Join(err, e.Close(ctx))
					}
				}
				return e.Close(ctx)
			}()
		})
	}
	var took []time.Duration
	for range jobs * len(schemas) {
		select {
		case a := <-p.started:
			mu.Lock()
			took = append(took, a.at.Sub(began[a.n]))
			mu.Unlock()
		case <-time.After(time.Minute):
			return nil, errors.Join(errors.New("a job did not start within a minute"), p.stop())
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), p.stop())
		}
	}
	all.Wait()
	return quantiles(took), errors.Join(errors.Join(errs...), p.stop())
}

func (b *bench) crossOurs(ctx context.Context, n int, poll time.Duration) (report.Sample, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	e, err := ours.Client(ctx, db, nil)
	if err != nil {
		return nil, err
	}
	w := workerFlags{system: "ours", url: db.URL, schemas: engine.DefaultSchema, poll: poll, report: true}
	sample, err := cross(ctx, w, n, func(ctx context.Context, i int) error {
		_, err := e.Insert(ctx, noop(i))
		return err
	})
	return sample, errors.Join(err, e.Close(ctx))
}

func (b *bench) crossRiver(ctx context.Context, n int, w workerFlags) (report.Sample, error) {
	db, err := b.river(ctx)
	if err != nil {
		return nil, err
	}
	r, err := peers.NewRiver(ctx, db, peers.RiverTuned) // not started: it only inserts; its cooldown also bounds how often it notifies
	if err != nil {
		return nil, err
	}
	w.url = db.URL
	sample, err := cross(ctx, w, n, r.InsertOne)
	r.Release()
	return sample, err
}

// cross sends jobs one by one to a separate process.
func cross(ctx context.Context, w workerFlags, n int, send func(ctx context.Context, i int) error) (report.Sample, error) {
	p, err := w.launch(ctx)
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time)
	go func() {
		for a := range p.started {
			started <- a.at
		}
	}()
	pause := func() time.Duration { return 30*time.Millisecond + rand.N(40*time.Millisecond) } //nolint:gosec // no secret
	sample, err := latencies(ctx, n, pause, send, started)
	if err := errors.Join(err, p.stop()); err != nil {
		return nil, fmt.Errorf("across processes: %w", err)
	}
	return sample, nil
}
