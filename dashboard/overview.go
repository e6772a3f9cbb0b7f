package dashboard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// overview answers: is it healthy, and if not, where?
type overview struct {
	All      tally
	At       time.Time // of the counts
	Complete bool
	Queues   []*queueRow
	Workers  int // that are live
	Lost     int // that have gone silent within the hour
	Slots    int
	Failures []*failureRow
	Held     []engine.GateStatus // gates at which somebody waits
	Warnings []warning
}

// warning is something that an operator should look at.
type warning struct{ Text, Path string }

// queueRow is a queue with all that is known of it.
type queueRow struct {
	Name    string
	Counts  tally
	Slots   int
	Workers int
	Lag     time.Duration
	Paused  time.Time
	Trend   string
}

// Busy is how many percent of the slots are taken.
func (q *queueRow) Busy() int { return fraction(int(q.Counts.Of[fsm.StatusExecuting]), q.Slots) }

// failureRow is one way in which instances have failed lately.
type failureRow struct {
	Machine string
	Version int
	Step    string
	Error   string
	Kind    fsm.Failure
	Count   int
	Last    time.Time
	Example fsm.ID
}

// Path leads to the instances that failed so.
func (f *failureRow) Path() string {
	return "instances?" + url.Values{
		"machine": {f.Machine}, "version": {strconv.Itoa(f.Version)}, "step": {f.Step}, "status": {"failed"}, "failure": {string(f.Kind)},
	}.Encode()
}

// recentFailures is how many failed instances the overview looks at.
const recentFailures = 100

func (s *server) overview(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	counts, err := s.counts(ctx)
	if err != nil {
		return "", nil, err
	}
	o := &overview{At: counts.At, Complete: counts.Complete}
	for _, c := range counts.Counts {
		o.All.add(c.Status, c.Count)
	}
	workers, err := s.workers(ctx)
	if err != nil {
		return "", nil, err
	}
	if o.Queues, err = s.queueRows(ctx, counts, workers); err != nil {
		return "", nil, err
	}
	if accessOf(ctx).everywhere() {
		for _, w := range workers {
			if !w.Live {
				o.Lost++
				continue
			}
			o.Workers++
			for _, slots := range w.Queues {
				o.Slots += slots
			}
		}
	}
	if err := s.held(ctx, o); err != nil {
		return "", nil, err
	}
	failed, err := s.instances(ctx, engine.Query{Filter: engine.Filter{Status: []fsm.Status{fsm.StatusFailed}}, Limit: recentFailures})
	if err != nil {
		return "", nil, err
	}
	o.Failures = failures(failed.Instances)
	o.warn(accessOf(ctx).everywhere())
	return "overview", &page{Title: "Overview", Section: "overview", Refresh: 1, Body: o}, nil
}

func (s *server) held(ctx context.Context, o *overview) error {
	gates, err := s.gates(ctx)
	for _, g := range gates {
		if (g.Waiting > 0 || g.Closed) && accessOf(ctx).sees(g.Queue, g.Machine) {
			o.Held = append(o.Held, g)
		}
	}
	return err
}

// queueRows joins what is known of queues: their instances, their workers, how late they are, and
// whether they are paused.
func (s *server) queueRows(ctx context.Context, counts engine.Counts, workers []engine.Worker) ([]*queueRow, error) {
	paused, err := s.paused(ctx)
	if err != nil {
		return nil, err
	}
	rows := map[string]*queueRow{}
	row := func(name string) *queueRow {
		if rows[name] == nil {
			rows[name] = &queueRow{Name: name}
		}
		return rows[name]
	}
	for _, c := range counts.Counts {
		row(c.Queue).Counts.add(c.Status, c.Count)
	}
	access := accessOf(ctx)
	mine := func(queue string) bool { return len(access.Queues) == 0 || slices.Contains(access.Queues, queue) }
	for _, w := range workers {
		for queue, slots := range w.Queues {
			if w.Live && mine(queue) {
				row(queue).Slots += slots
				row(queue).Workers++
			}
		}
	}
	for queue, since := range paused {
		if mine(queue) {
			row(queue).Paused = since
		}
	}
	names := slices.Sorted(maps.Keys(rows))
	if len(names) == 0 {
		return nil, nil
	}
	lag, err := light(ctx, s, "lag "+url.Values{"q": names}.Encode(), func(ctx context.Context) (map[string]time.Duration, error) {
		return s.engine.Lag(ctx, names...)
	})
	if err != nil {
		return nil, err
	}
	all := make([]*queueRow, 0, len(names))
	for _, name := range names {
		q := rows[name]
		q.Lag, q.Trend = lag[name], s.trend.line(name, 90, 22)
		all = append(all, q)
	}
	return all, nil
}

// failures groups failed instances by machine, step and error, the most recent first.
func failures(failed []fsm.RawInstance) (all []*failureRow) {
	type group struct {
		machine, step, text string
		version             int
	}
	known := map[group]*failureRow{}
	for n := range failed {
		i := &failed[n]
		g := group{i.Machine, i.Step, cut(i.LastError, 200), i.Version}
		row := known[g]
		if row == nil {
			row = &failureRow{Machine: i.Machine, Version: i.Version, Step: i.Step, Error: g.text, Kind: i.Failure, Example: i.ID}
			known[g] = row
			all = append(all, row)
		}
		row.Count++
		if i.FinishedAt.After(row.Last) {
			row.Last, row.Example = i.FinishedAt, i.ID
		}
	}
	slices.SortFunc(all, func(a, b *failureRow) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Example, b.Example)) })
	return all[:min(len(all), 12)]
}

// late is from when on the oldest instance that is due makes a warning.
const late = time.Minute

// warn finds what is wrong among what the page has read anyway.
func (o *overview) warn(everywhere bool) {
	add := func(text, path string) { o.Warnings = append(o.Warnings, warning{text, path}) }
	for _, q := range o.Queues {
		path := "instances?" + url.Values{"queue": {q.Name}, "status": {"runnable"}}.Encode()
		switch {
		case !q.Paused.IsZero() && q.Counts.Of[fsm.StatusRunnable] > 0:
			add("Queue "+q.Name+" is paused, and "+grouped(q.Counts.Of[fsm.StatusRunnable])+" instances wait in it.", path)
		case q.Workers == 0 && q.Counts.Of[fsm.StatusRunnable] > 0:
			add("No live worker serves queue "+q.Name+", in which "+grouped(q.Counts.Of[fsm.StatusRunnable])+" instances are runnable.", path)
		case q.Lag > late:
			add("The oldest instance of queue "+q.Name+" has been due for "+brief(q.Lag)+".", path)
		}
	}
	if everywhere && o.Lost > 0 {
		add(grouped(o.Lost)+" of the workers have gone silent within the last hour.", "workers")
	}
	if !o.Complete {
		add("The instances could not be counted in time: the numbers are those of the last count.", "")
	}
}
