package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/report"
	"github.com/gendurable/gendurable/citus"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/migrate"
)

// onCitus is P20: what a schema that Citus distributes costs the server at its owner, beside a
// plain schema on the same Postgres without Citus; what the other nodes have of that; and what two
// schemas on two workers cost at once. All servers share the machine's processors. So CPU and
// write-ahead log are compared, by server, and not rates.
func onCitus(ctx context.Context, b *bench) (*trial, error) {
	c, err := b.openCitus(ctx)
	if err != nil {
		return nil, err
	}
	t := &trial{notes: []string{
		"elsewhere are the coordinator and the other worker together, while the owner works",
		"of two: two schemas, each with an engine, drained at once on two workers",
	}}
	for _, l := range citusLoads {
		n := b.count(l.rows) / l.steps
		plain, owner, elsewhere := l.name+", plain", l.name+", owner", l.name+", elsewhere"
		t.contenders = append(t.contenders,
			contender{plain, func(ctx context.Context) (report.Sample, error) {
				samples, err := c.round(ctx, l, n, c.plain)
				return samples[c.plain.at], err
			}},
			contender{owner, func(ctx context.Context) (report.Sample, error) {
				samples, err := c.round(ctx, l, n, c.places[0])
				c.elsewhere = sum(samples[c.nodes.Coordinator], samples[c.places[1].at])
				return samples[c.places[0].at], err
			}},
			contender{elsewhere, func(context.Context) (report.Sample, error) { return c.elsewhere, nil }})
		t.checks = append(t.checks,
			report.Check{Label: l.name + "-cpu", Of: owner, Against: plain, By: report.Server, AtMost: 1.2},
			report.Check{Label: l.name + "-wal", Of: owner, Against: plain, By: report.WAL},
			report.Check{Label: l.name + "-cpu-elsewhere", Of: elsewhere, Against: owner, By: report.Server},
			report.Check{Label: l.name + "-wal-elsewhere", Of: elsewhere, Against: owner, By: report.WAL})
	}
	job := citusLoads[1]
	alone, first, second := job.name+", owner", job.name+", first of two", job.name+", second of two"
	n := b.count(job.rows) / job.steps
	t.contenders = append(t.contenders,
		contender{first, func(ctx context.Context) (report.Sample, error) {
			samples, err := c.round(ctx, job, n, c.places...)
			c.elsewhere = samples[c.places[1].at]
			return samples[c.places[0].at], err
		}},
		contender{second, func(context.Context) (report.Sample, error) { return c.elsewhere, nil }})
	for _, of := range []string{first, second} {
		t.checks = append(t.checks,
			report.Check{Label: "alone-beside-" + of[len(job.name)+2:], Of: alone, Against: of, By: report.Server, AtLeast: 0.8},
			report.Check{Label: "alone-beside-" + of[len(job.name)+2:] + "-wal", Of: alone, Against: of, By: report.WAL})
	}
	return t, nil
}

// citusLoad is a kind of work. Its rows are what a sample's figures are per.
type citusLoad struct {
	name    string
	rows    int
	steps   int // of an instance
	inserts bool
	spec    func(i int) fsm.Spec
	machine func(ran func()) []fsm.Definition
}

// keptSteps is how many steps the instances have of which nearly all are kept.
const keptSteps = 50

var citusLoads = []citusLoad{
	{"insert", 100_000, 1, true, noop, noops},
	{"job", 100_000, 1, false, noop, noops},
	{"kept step", 400_000, keptSteps, false, func(i int) fsm.Spec {
		o := ours.NewOrder(i)
		o.N = keptSteps
		return ours.Loop.New(o)
	}, func(ran func()) []fsm.Definition { return []fsm.Definition{ours.LoopMachine(ran)} }},
}

// onNodes are the servers of P20, and the schemas there.
type onNodes struct {
	b         *bench
	nodes     *lab.Citus
	plain     place
	places    []place
	elsewhere report.Sample // the round before measured it, too
}

// place is a schema of engines.
type place struct {
	at     *lab.Database // where engines work
	tables *lab.Database // where one statement reaches its tables: the coordinator's, if Citus distributes it
	schema string
}

// openCitus starts the servers, and distributes a schema to each worker.
func (b *bench) openCitus(ctx context.Context) (*onNodes, error) {
	if b.citus == "" {
		return nil, errors.New("which Postgres has Citus? -citus names its bin directory (make bench ONLY=P20 PGBIN=…)")
	}
	c := &onNodes{b: b}
	single, err := lab.OpenPlain(ctx, b.citus)
	if err != nil {
		return nil, err
	}
	b.opened = append(b.opened, single.Close)
	db, err := single.Database(ctx, "plain")
	if err != nil {
		return nil, err
	}
	b.opened = slices.Insert(b.opened, len(b.opened)-1, db.Close)
	c.plain = place{db, db, engine.DefaultSchema}
	if err := ours.Migrate(ctx, db); err != nil {
		return nil, err
	}
	if c.nodes, err = lab.OpenCitus(ctx, b.citus); err != nil {
		return nil, err
	}
	b.opened = append(b.opened, c.nodes.Close)
	for i, schema := range []string{engine.DefaultSchema, "gendurable_2"} {
		p, err := c.distribute(ctx, schema, c.nodes.Workers[i])
		if err != nil {
			return nil, err
		}
		c.places = append(c.places, p)
	}
	return c, nil
}

// distribute makes a schema whose owner is a worker.
func (c *onNodes) distribute(ctx context.Context, schema string, worker *lab.Database) (place, error) {
	p := place{worker, c.nodes.Coordinator, schema}
	pool, err := p.tables.Pool(ctx, 0)
	if err != nil {
		return p, err
	}
	defer pool.Close()
	if _, err := (migrate.Migrator{Pool: pool, Schema: schema}).Up(ctx); err != nil {
		return p, err
	}
	if err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return citus.Distribute(ctx, conn.Conn(), schema) }); err != nil {
		return p, err
	}
	_, port, err := citus.Owner(ctx, pool, schema)
	if err != nil {
		return p, err
	}
	wanted, err := pgx.ParseConfig(worker.URL)
	if err != nil || wanted.Port == port {
		return p, err
	}
	_, err = pool.Exec(ctx, "SELECT citus_schema_move($1::text::regnamespace, $2::text, $3::int, 'block_writes')", schema, wanted.Host, int(wanted.Port))
	return p, err
}

// round does a load of n instances in each of the places at once, and returns what each server had
// of it, per row.
func (c *onNodes) round(ctx context.Context, l citusLoad, n int, places ...place) (map[*lab.Database]report.Sample, error) {
	var works []func(context.Context) error
	for _, p := range places {
		work, end, err := c.prepare(ctx, l, n, p)
		if err != nil {
			return nil, fmt.Errorf("prepare schema %s: %w", p.schema, err)
		}
		defer end()
		works = append(works, work)
	}
	servers := c.nodes.Nodes()
	if places[0] == c.plain {
		servers = []*lab.Database{c.plain.at}
	}
	var meters []*lab.Meter
	for _, s := range servers {
		m, err := s.Lab().Start(ctx)
		if err != nil {
			return nil, err
		}
		meters = append(meters, m)
	}
	var all sync.WaitGroup
	errs := make([]error, len(works))
	for i, work := range works {
		all.Go(func() { errs[i] = work(ctx) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	rows, samples := float64(n*l.steps), map[*lab.Database]report.Sample{}
	for i, m := range meters {
		cost, err := m.Stop(ctx)
		if err != nil {
			return nil, err
		}
		samples[servers[i]] = report.Sample{
			report.Server: float64(cost.Server) / float64(time.Microsecond) / rows,
			report.WAL:    float64(cost.WAL) / rows,
		}
	}
	for _, p := range places {
		if err := l.check(ctx, n, p); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// warmInserts are inserted before insertion is measured.
const warmInserts = 10

// prepare brings a place to where a load of n instances begins.
func (c *onNodes) prepare(ctx context.Context, l citusLoad, n int, p place) (work func(context.Context) error, end func(), err error) {
	in := func(c *engine.Config) { c.Schema = p.schema }
	if err := errors.Join(p.tables.Exec(ctx, "TRUNCATE "+p.schema+".gen_durable CASCADE"), p.at.Lab().Checkpoint(ctx)); err != nil {
		return nil, nil, err
	}
	e, err := ours.Client(ctx, p.at, in)
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = e.Close(context.WithoutCancel(ctx)) }
	if l.inserts {
		if err := ours.Insert(ctx, e, warmInserts, l.spec); err != nil {
			end()
			return nil, nil, err
		}
		return func(ctx context.Context) error { return ours.Insert(ctx, e, n, l.spec) }, end, nil
	}
	if err := errors.Join(ours.Insert(ctx, e, n, l.spec), p.tables.Exec(ctx, "VACUUM (ANALYZE) "+p.schema+".gen_durable")); err != nil {
		end()
		return nil, nil, err
	}
	do := ours.Work(p.at, n*l.steps, ours.Options{Concurrency: c.b.workers, Change: in}, l.machine)
	return func(ctx context.Context) error {
		stop, err := do(ctx)
		if stop != nil {
			err = errors.Join(err, stop(ctx))
		}
		return err
	}, end, nil
}

// check checks that all n instances are as the load leaves them.
func (l *citusLoad) check(ctx context.Context, n int, p place) error {
	status := "done"
	if l.inserts {
		status, n = "runnable", n+warmInserts
	}
	found, err := p.tables.Int(ctx, "SELECT count(*) FROM "+p.schema+".gen_durable WHERE status = '"+status+"'")
	if err == nil && found != int64(n) {
		err = fmt.Errorf("%d of %d instances are %s", found, n, status)
	}
	return err
}

// sum adds what servers had.
func sum(samples ...report.Sample) report.Sample {
	all := report.Sample{}
	for _, s := range samples {
		for metric, v := range s {
			all[metric] += v
		}
	}
	return all
}
