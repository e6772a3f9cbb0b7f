package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gendurable/gendurable/bench/lab"
	"github.com/gendurable/gendurable/bench/ours"
	"github.com/gendurable/gendurable/bench/peers"
	"github.com/gendurable/gendurable/bench/report"
)

// station is one system under a load that lasts. The worker has a separate process, so that its
// memory can be told apart; this process inserts and watches.
type station struct {
	name   string
	db     *lab.Database
	worker *process
	insert func(ctx context.Context, n int) error
	end    func(ctx context.Context) error
	table  string

	inserted int
	ran      int
}

// opener starts a worker on a table of n jobs, which keeps ended jobs for the time retain.
type opener = func(ctx context.Context, n int, retain time.Duration) (*station, error)

func (b *bench) stationOurs(ctx context.Context, n int, retain time.Duration) (*station, error) {
	db, err := b.ours(ctx)
	if err != nil {
		return nil, err
	}
	e, err := ours.Client(ctx, db, nil)
	if err != nil {
		return nil, err
	}
	w := workerFlags{system: "ours", url: db.URL, schemas: "gendurable", concurrency: b.workers, retain: retain, progress: true}
	return newStation(ctx, &station{name: "ours", db: db, end: e.Close, table: "gendurable.gen_durable",
		insert: func(ctx context.Context, n int) error { return ours.Insert(ctx, e, n, noop) }}, n, w)
}

func (b *bench) stationRiver(ctx context.Context, n int, retain time.Duration) (*station, error) {
	db, err := b.river(ctx)
	if err != nil {
		return nil, err
	}
	r, err := peers.NewRiver(ctx, db, peers.RiverTuned) // not started: it only inserts
	if err != nil {
		return nil, err
	}
	w := workerFlags{system: "river", url: db.URL, concurrency: b.workers, retain: retain, progress: true}
	return newStation(ctx, &station{name: "river", db: db, end: func(context.Context) error { r.Release(); return nil }, table: "river_job",
		insert: r.Insert}, n, w)
}

func newStation(ctx context.Context, s *station, n int, w workerFlags) (*station, error) {
	if err := s.insert(ctx, n); err != nil {
		return nil, errors.Join(err, s.end(ctx))
	}
	s.inserted = n
	var err error
	if s.worker, err = w.launch(ctx); err != nil {
		return nil, errors.Join(err, s.end(ctx))
	}
	return s, nil
}

func (s *station) close(ctx context.Context) error { return errors.Join(s.worker.stop(), s.end(ctx)) }

// Moment holds the values of an endurance run at one time.
type Moment struct {
	Minute  float64 `json:"minute"`
	Rate    float64 `json:"rate"`    // jobs started per second, since the moment before
	Backlog int     `json:"backlog"` // inserted but not started
	RSS     float64 `json:"rss"`     // MB of the worker's process
	Table   float64 `json:"table"`   // MB, with its map files and TOAST table
	Indexes float64 `json:"indexes"` // MB
	Dead    int64   `json:"dead"`    // tuples, as far as Postgres has counted
	Live    int64   `json:"live"`
}

// Course is a system's run over time.
type Course struct {
	System  string   `json:"system"`
	Phase   string   `json:"phase"`
	Moments []Moment `json:"moments"`
}

// load returns how many jobs to insert now, so long after the start and with this backlog.
type load func(since time.Duration, inserted, backlog int) int

// steady inserts so many jobs per second.
func steady(rate float64) load {
	return func(since time.Duration, inserted, _ int) int { return int(since.Seconds()*rate) - inserted }
}

// saturated keeps the backlog at this size.
func saturated(backlog int) load {
	return func(_ time.Duration, _, have int) int { return max(0, backlog-have) }
}

// none inserts nothing, so that the backlog is drained.
func none(time.Duration, int, int) int { return 0 }

// watch keeps the load up and takes a moment every so often, until the time is over or, if no more
// is inserted, all jobs are done.
func (s *station) watch(ctx context.Context, phase string, span, every time.Duration, next load) (Course, error) {
	c := Course{System: s.name, Phase: phase}
	began := time.Now()
	looked, before := began, s.ran
	for time.Since(began) < span {
		if n := next(time.Since(began), s.inserted, s.inserted-s.ran); n > 0 {
			n = min(n, 20_000)
			if err := s.insert(ctx, n); err != nil {
				return c, err
			}
			s.inserted += n
		}
		if err := s.listen(ctx, 50*time.Millisecond); err != nil {
			return c, err
		}
		done := s.ran >= s.inserted && next(span, s.inserted, 0) == 0
		if since := time.Since(looked); since >= every || done {
			m, err := s.look(ctx)
			if err != nil {
				return c, err
			}
			m.Minute, m.Rate = time.Since(began).Minutes(), float64(s.ran-before)/since.Seconds()
			c.Moments = append(c.Moments, m)
			looked, before = time.Now(), s.ran
		}
		if done {
			break
		}
	}
	return c, nil
}

// listen reads the worker's count.
func (s *station) listen(ctx context.Context, d time.Duration) error {
	over := time.After(d)
	for {
		select {
		case a, ok := <-s.worker.started:
			if !ok {
				return errors.New("the worker has ended")
			}
			s.ran = a.n
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *station) look(ctx context.Context) (m Moment, err error) {
	rss, err := lab.Memory(s.worker.cmd.Process.Pid)
	if err != nil {
		return m, err
	}
	var table, indexes int64
	err = s.db.Row(ctx, fmt.Sprintf(`SELECT pg_table_size('%[1]s'), pg_indexes_size('%[1]s'), n_dead_tup, n_live_tup
		FROM pg_stat_user_tables WHERE relid = '%[1]s'::regclass`, s.table), &table, &indexes, &m.Dead, &m.Live)
	const mb = 1 << 20
	m.RSS, m.Table, m.Indexes, m.Backlog = float64(rss)/mb, float64(table)/mb, float64(indexes)/mb, s.inserted-s.ran
	return m, err
}

// pin holds a snapshot until the returned function ends it: rows that die meanwhile cannot be
// vacuumed.
func pin(ctx context.Context, db *lab.Database) (func(), error) {
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()"); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

// of returns the values of one quantity over the moments from one part of the course to another.
func (c Course) of(from, to float64, value func(Moment) float64) []float64 {
	n := float64(len(c.Moments))
	var out []float64
	for _, m := range c.Moments[int(from*n):int(to*n)] {
		out = append(out, value(m))
	}
	return out
}

// growth returns the median of a quantity in the last third of the course divided by that in the
// middle third.
func (c Course) growth(value func(Moment) float64) float64 {
	middle := report.Median(c.of(1./3, 2./3, value))
	if middle == 0 {
		return 0
	}
	return report.Median(c.of(2./3, 1, value)) / middle
}

func (c Course) most(value func(Moment) float64) float64 {
	values := c.of(0, 1, value)
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values)
}

func rate(m Moment) float64   { return m.Rate }
func rss(m Moment) float64    { return m.RSS }
func size(m Moment) float64   { return m.Table + m.Indexes }
func tables(m Moment) float64 { return m.Table }

// enduring refuses ids that are not targets of an endurance run.
func enduring(only string) error {
	for id := range strings.SplitSeq(only, ",") {
		if only != "" && id != "P13" && id != "P14" {
			return fmt.Errorf("there is no target %q in an endurance run; there are P13 and P14", id)
		}
	}
	return nil
}

// endure runs P13 and P14, or only one of them.
func (b *bench) endure(ctx context.Context, minutes float64, only string) (d *document, err error) {
	if d, err = b.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	span := time.Duration(minutes * float64(time.Minute))
	for _, t := range []struct {
		id      string
		measure func() (report.Result, error)
	}{
		{"P13", func() (report.Result, error) { return b.memory(ctx, d) }},
		{"P14", func() (report.Result, error) { return b.flat(ctx, d, span) }},
	} {
		if only != "" && !strings.Contains(only, t.id) {
			continue
		}
		result, err := t.measure()
		if err != nil {
			return d, err
		}
		b.print(d, result)
	}
	return d, nil
}

// memory is P13: a worker drains a million jobs.
func (b *bench) memory(ctx context.Context, d *document) (report.Result, error) {
	r := report.Result{ID: "P13", Title: "resident memory while a million jobs are drained"}
	n, began := b.count(1_000_000), time.Now()
	for _, open := range []opener{b.stationOurs, b.stationRiver} {
		s, err := open(ctx, n, 0)
		if err != nil {
			return r, err
		}
		c, err := s.watch(ctx, "drain", time.Hour, time.Second, none)
		if err := errors.Join(err, s.close(ctx)); err != nil {
			return r, err
		}
		d.Courses = append(d.Courses, c)
		r.Verdicts = append(r.Verdicts, courseVerdicts(c)...)
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// courseVerdicts bounds our memory; River's is printed beside it.
func courseVerdicts(c Course) []report.Verdict {
	if c.System != "ours" {
		return []report.Verdict{report.Single(c.System+"-MB", c.most(rss), 0, 0)}
	}
	return []report.Verdict{
		report.Single("MB", c.most(rss), 0, 150),
		report.Single("growth", c.growth(rss), 0, 1.1),
	}
}

// flat is P14: half of the rate that P1 reaches, for the whole span, while ended jobs are
// collected; then the highest rate that each system reaches while a snapshot is held for five
// minutes.
func (b *bench) flat(ctx context.Context, d *document, span time.Duration) (report.Result, error) {
	r := report.Result{ID: "P14", Title: "sizes and rate over time, and with a pinned xmin"}
	began := time.Now()
	drained, err := b.drainOurs(ctx, "P14", b.count(100_000), ours.Options{Concurrency: b.workers})
	if err != nil {
		return r, err
	}
	half := drained[report.Rate] / 2
	retain, every := min(time.Minute, span/6), max(span/180, 500*time.Millisecond)
	pinned := min(5*time.Minute, span/3)
	r.Notes = append(r.Notes, fmt.Sprintf("steady at %.0f jobs/s for %s, ended instances kept for %s; then saturated for %s under a pinned xmin",
		half, span, retain, pinned))
	steadily, err := b.course(ctx, b.stationOurs, retain, "steady", span, every, steady(half), false)
	if err != nil {
		return r, err
	}
	d.Courses = append(d.Courses, steadily)
	r.Verdicts = append(r.Verdicts,
		report.Single("rate-kept", report.Median(steadily.of(1./3, 1, rate))/half, 0.95, 0),
		report.Single("rate-growth", steadily.growth(rate), 0.95, 0),
		report.Single("table-growth", steadily.growth(tables), 0, 1.1),
		report.Single("size-growth", steadily.growth(size), 0, 1.1),
		report.Single("MB", steadily.most(rss), 0, 0))
	var rates []float64
	for _, open := range []opener{b.stationOurs, b.stationRiver} {
		c, err := b.course(ctx, open, retain, "pinned xmin", pinned, max(pinned/60, 500*time.Millisecond), saturated(b.count(20_000)), true)
		if err != nil {
			return r, err
		}
		d.Courses = append(d.Courses, c)
		rates = append(rates, report.Median(c.of(1./3, 1, rate)))
	}
	r.Verdicts = append(r.Verdicts, report.Single("pinned-river", rates[0]/rates[1], 1, 0))
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// course runs one system under one load.
func (b *bench) course(ctx context.Context, open opener, retain time.Duration, phase string,
	span, every time.Duration, next load, pinned bool) (Course, error) {
	s, err := open(ctx, 0, retain)
	if err != nil {
		return Course{}, err
	}
	if pinned {
		release, err := pin(ctx, s.db)
		if err != nil {
			return Course{}, errors.Join(err, s.close(ctx))
		}
		defer release()
	}
	c, err := s.watch(ctx, phase, span, every, next)
	return c, errors.Join(err, s.close(ctx))
}
