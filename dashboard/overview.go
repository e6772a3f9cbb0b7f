package dashboard

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// overview answers: is it healthy, and if not, where?
type overview struct {
	All      tally
	At       time.Time // of the counts
	Complete bool
	Queues   []*queueRow // those in which most happens
	Others   int         // queues that are not among them
	Pulse    *pulse      // of all queues; nil: it may not be seen
	Workers  int         // that are live
	Lost     int         // that have gone silent within the hour
	Slots    int
	Failures []failureRow
	Looked   int64     // failures that were counted
	More     bool      // there may be other groups
	Since    time.Time // when the oldest of them ended
	Held     []gateRow // gates at which somebody waits, or that are closed, also for single keys
	Warnings []warning
	Places   []placeRow // of a cluster
}

// warning is something that an operator should look at.
type warning struct{ Text, Path string }

// queueRow is a queue with all that is known of it.
type queueRow struct {
	engine.QueueLoad

	Name   string
	Counts tally
	Lag    time.Duration
	Pulse  *pulse // nil: it may not be seen
}

// Busy is how many percent of the slots are taken.
func (q *queueRow) Busy() int { return fraction(int(q.Executing), q.Slots) }

// failureRow is one way in which instances have failed.
type failureRow struct{ engine.FailureGroup }

// Path leads to the instances that failed so, and no others.
func (f failureRow) Path() string {
	return "instances?" + url.Values{"status": {"failed"}, "fingerprint": {f.Fingerprint}}.Encode()
}

// failureRows is how many groups of failures the overview shows.
const failureRows = 12

func (s *server) overview(r *http.Request) (string, *page, error) {
	ctx := r.Context()
	access := accessOf(ctx)
	counted, err := gather(ctx, s, s.countsAt)
	if err != nil {
		return "", nil, err
	}
	loads, err := s.loads(ctx)
	if err != nil {
		return "", nil, err
	}
	rates, err := s.rates(ctx)
	if err != nil {
		return "", nil, err
	}
	o := &overview{}
	if err := s.held(ctx, o); err != nil {
		return "", nil, err
	}
	failed, err := s.failures(ctx, engine.FailuresOptions{Limit: fsm.MaxLimit, Within: access.Within})
	if err != nil {
		return "", nil, err
	}
	counted, loads = present(ctx, counted), present(ctx, loads) // a place may have gone down since
	counts, load := mergeCounts(values(counted)), mergeLoads(values(loads))
	o.At, o.Complete = counts.At, counts.Complete
	for _, c := range counts.Counts {
		o.All.add(c.Status, c.Count)
	}
	o.Pulse = rates[""]
	o.Queues = queueRows(counts, load, rates)
	for _, w := range load.Workers {
		if !w.Live {
			o.Lost++
			continue
		}
		o.Workers++
		o.Slots += w.Slots
	}
	for _, g := range failed.Groups {
		if len(o.Failures) < failureRows {
			o.Failures = append(o.Failures, failureRow{g})
		}
	}
	o.Looked, o.More, o.Since = failed.Looked, failed.More, failed.Since
	o.warn()
	o.cut()
	o.Places = s.placeRows(ctx, counted, loads)
	return "overview", &page{Title: "Overview", Section: "overview", Refresh: 1, Body: o}, nil
}

// load is the load of the queues that the access of ctx may see. A user who may see some machines
// only, or some labels, sees none: it is not told apart by these. Workers serve several queues.
func (s *server) load(ctx context.Context) (load engine.Load, err error) {
	all, err := s.loads(ctx)
	if err != nil {
		return load, err
	}
	return mergeLoads(values(all)), nil
}

// loads has the load of each engine.
func (s *server) loads(ctx context.Context) ([]found[engine.Load], error) {
	return gather(ctx, s, s.loadAt)
}

func (s *server) loadAt(ctx context.Context, at *site) (load engine.Load, err error) {
	access := accessOf(ctx)
	if !access.byQueue() {
		return load, nil
	}
	if load, err = light(ctx, s, at, "load", at.engine.Admin().Load); err != nil || access.everywhere() {
		return load, err
	}
	own := make([]engine.QueueLoad, 0, len(load.Queues))
	for _, q := range load.Queues {
		if access.sees(q.Queue, "") {
			own = append(own, q)
		}
	}
	load.Queues, load.Workers = own, nil
	return load, nil
}

func (s *server) held(ctx context.Context, o *overview) error {
	gates, err := s.gates(ctx)
	for _, g := range gates {
		if g.Waiting > 0 || g.Closed || !g.ClosedUntil.IsZero() || g.ClosedKeys > 0 {
			o.Held = append(o.Held, g)
		}
	}
	return err
}

// placeRow is a place of a cluster.
type placeRow struct {
	Place   int
	Down    string // why it is left out; "": it answers
	Counts  tally
	Due     int64
	AtLeast bool
	Lag     time.Duration // of the oldest due instance
	Workers int           // that are live
	Slots   int
}

// placeRows has a row for each place of a cluster, also of those that are down.
func (s *server) placeRows(ctx context.Context, counts []found[engine.Counts], loads []found[engine.Load]) []placeRow {
	if s.cluster == nil {
		return nil
	}
	rows := make([]placeRow, len(s.sites))
	for n := range rows {
		rows[n].Place = n
	}
	for _, one := range counts {
		for _, c := range one.value.Counts {
			rows[one.site.place].Counts.add(c.Status, c.Count)
		}
	}
	for _, one := range loads {
		row := &rows[one.site.place]
		for _, q := range one.value.Queues {
			row.Due, row.AtLeast = row.Due+q.Due, row.AtLeast || q.AtLeast
			if !q.OldestDue.IsZero() {
				row.Lag = max(row.Lag, one.value.At.Sub(q.OldestDue))
			}
		}
		for _, w := range one.value.Workers {
			if w.Live {
				row.Workers, row.Slots = row.Workers+1, row.Slots+w.Slots
			}
		}
	}
	for _, l := range lacking(ctx) {
		rows[l.Place].Down = l.Why
	}
	return rows
}

// queueRows joins the load of queues with their counts.
func queueRows(counts engine.Counts, load engine.Load, rates map[string]*pulse) []*queueRow {
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
	for _, q := range load.Queues {
		row(q.Queue).QueueLoad = q
	}
	all := make([]*queueRow, 0, len(rows))
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		q := rows[name]
		if !q.OldestDue.IsZero() {
			q.Lag = max(0, load.At.Sub(q.OldestDue))
		}
		if q.Pulse = rates[name]; q.Pulse == nil && rates != nil {
			q.Pulse = &pulse{InOver: rates[""].InOver, OutOver: rates[""].OutOver} // nothing happened
		}
		all = append(all, q)
	}
	return all
}

// overviewQueues is how many queues the overview shows; their own page has all.
const overviewQueues = 50

// cut leaves the queues in which most happens, by name.
func (o *overview) cut() {
	if o.Others = len(o.Queues) - overviewQueues; o.Others <= 0 {
		o.Others = 0
		return
	}
	work := func(q *queueRow) int64 {
		n := q.Due + q.Executing
		if q.Pulse != nil {
			n += q.Pulse.Out
		}
		if !q.PausedSince.IsZero() {
			n++
		}
		return n
	}
	slices.SortStableFunc(o.Queues, func(a, b *queueRow) int { return cmp.Compare(work(b), work(a)) })
	o.Queues = o.Queues[:overviewQueues]
	slices.SortFunc(o.Queues, func(a, b *queueRow) int { return cmp.Compare(a.Name, b.Name) })
}

// late is from when on the oldest instance that is due makes a warning.
const late = time.Minute

// warn finds what is wrong among what the page has read anyway.
func (o *overview) warn() {
	add := func(text, path string) { o.Warnings = append(o.Warnings, warning{text, path}) }
	for _, q := range o.Queues {
		path := "instances?" + url.Values{"queue": {q.Name}, "status": {"runnable"}}.Encode()
		switch {
		case !q.PausedSince.IsZero() && q.Due > 0:
			add("Queue "+q.Name+" is paused, and "+number(q.Due, "instance is", "instances are")+" due in it.", path)
		case q.Workers == 0 && q.Due > 0:
			add("No live worker serves queue "+q.Name+", in which "+number(q.Due, "instance is", "instances are")+" due.", path)
		case q.Lag > late:
			add("The oldest instance of queue "+q.Name+" has been due for "+brief(q.Lag)+".", path)
		}
	}
	if o.Lost > 0 {
		add(number(int64(o.Lost), "worker has", "workers have")+" gone silent within the last hour.", "workers")
	}
	if !o.Complete {
		add("The instances could not be counted in time: the numbers are those of the last count.", "")
	}
}
