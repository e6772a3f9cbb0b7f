package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gendurable/gendurable/cluster"
	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// historyAge is for how long answers about the history are shared: each reads whole days.
const historyAge = time.Minute

// light asks what reads few rows, for all who ask within an interval, and waits for its turn.
func light[T any](ctx context.Context, s *server, at *site, key string, ask func(context.Context) (T, error)) (T, error) {
	value, _, err := once(ctx, &s.shared, s.key(at, key), s.Refresh, s.Timeout, func(ctx context.Context) (T, error) { return turned(ctx, at.turns.light, ask) })
	return value, err
}

// heavy asks what reads many rows, likewise.
func heavy[T any](ctx context.Context, s *server, at *site, key string, maxAge time.Duration, ask func(context.Context) (T, error)) (T, error) {
	value, _, err := once(ctx, &s.shared, s.key(at, key), maxAge, s.Timeout, func(ctx context.Context) (T, error) { return turned(ctx, at.turns.heavy, ask) })
	return value, err
}

// forget makes the next reads ask anew: a verb has changed something.
func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.answers)
}

// gateRow is a limit. Each place has its own.
type gateRow struct {
	engine.GateStatus

	Place *int `json:"place,omitempty"` // of a cluster
}

// gates are the limits that the access of ctx may see.
func (s *server) gates(ctx context.Context) (rows []gateRow, err error) {
	all, err := gather(ctx, s, func(ctx context.Context, at *site) ([]engine.GateStatus, error) {
		return light(ctx, s, at, "gates", at.engine.Admin().Gates)
	})
	for _, one := range all {
		for _, g := range one.value {
			if accessOf(ctx).sees(g.Queue, g.Machine) {
				rows = append(rows, gateRow{g, s.mark(one.site)})
			}
		}
	}
	if len(all) > 1 {
		slices.SortStableFunc(rows, func(a, b gateRow) int { return cmp.Compare(a.Name, b.Name) })
	}
	return rows, err
}

func (s *server) definitions(ctx context.Context) ([]engine.StoredDefinition, error) {
	all, err := gather(ctx, s, s.definitionsAt)
	if err != nil {
		return nil, err
	}
	return mergeDefinitions(values(all)), nil
}

func (s *server) definitionsAt(ctx context.Context, at *site) ([]engine.StoredDefinition, error) {
	return light(ctx, s, at, "definitions", at.engine.Definitions)
}

// counts are those that the access of ctx may see. They are not told apart by label.
func (s *server) counts(ctx context.Context) (engine.Counts, error) {
	return s.countsOf(ctx, 0)
}

// freshCounts is how old counts may be that a page is about, and totalAge those that say how long a
// list is. A count reads the whole table, so the next one begins no earlier than countRest times as
// long after it as it took: pages that stay open cost the database one hundredth of its time.
const (
	freshCounts = 10 * time.Second
	totalAge    = 5 * time.Minute
	countRest   = 100
)

// countAge is how old counts may be if the last count took so long.
func countAge(refresh, took time.Duration) time.Duration {
	return max(refresh, freshCounts, countRest*took)
}

// countsOf has counts that may be as old as given, and as countAge says.
func (s *server) countsOf(ctx context.Context, age time.Duration) (engine.Counts, error) {
	all, err := gather(ctx, s, func(ctx context.Context, at *site) (engine.Counts, error) { return s.countsAged(ctx, at, age) })
	if err != nil {
		return engine.Counts{}, err
	}
	return mergeCounts(values(all)), nil
}

func (s *server) countsAt(ctx context.Context, at *site) (engine.Counts, error) {
	return s.countsAged(ctx, at, 0)
}

func (s *server) countsAged(ctx context.Context, at *site, age time.Duration) (engine.Counts, error) {
	age = max(age, countAge(s.Refresh, time.Duration(at.counting.Load())))
	all, err := at.engine.Counts(ctx, engine.CountsOptions{MaxAge: age, Timeout: s.Timeout})
	if err != nil {
		return all, err
	}
	took := all.Took
	if !all.Complete { // the newest one was given up
		took = max(took, s.Timeout)
	}
	at.counting.Store(int64(took))
	if access := accessOf(ctx); !access.everywhere() {
		own := make([]engine.Count, 0, len(all.Counts))
		for _, c := range all.Counts {
			if access.sees(c.Queue, c.Machine) {
				own = append(own, c)
			}
		}
		all.Counts = own
	}
	return all, nil
}

// instances reads a page of a list of what the access of ctx may see. The rows have no states,
// results and progress: no list shows them, and a page of them may be large.
func (s *server) instances(ctx context.Context, q engine.Query) (engine.Page, error) {
	return s.page(ctx, "list", s.Refresh, q, func(got engine.Page, err error) (engine.Page, error) { return got, err })
}

// listed is a page of a list, of the places that answered.
type listed struct {
	engine.Page

	lacks []*cluster.PlaceError
}

// of notes the places that the page is without.
func (l listed) of(ctx context.Context) engine.Page {
	if left, ok := ctx.Value(lacksKey{}).(*lacks); ok {
		for _, e := range l.lacks {
			left.add(e.Place, e.Err)
		}
	}
	return l.Page
}

// page reads a page of a list for all who ask within an interval, and keeps what is left of it. The
// bounds of the access of ctx are part of the query, and readers of the same bounds share an
// answer: if rows were left out of the answer of a wider query, its length and its cursor would
// tell of them.
func (s *server) page(ctx context.Context, what string, maxAge time.Duration, q engine.Query, leave func(engine.Page, error) (engine.Page, error)) (engine.Page, error) {
	up, err := s.reached(ctx)
	if err != nil {
		return engine.Page{}, err
	}
	q.Within, q.Outline = accessOf(ctx).Within, true
	key := fmt.Sprintf("%s %#v", what, q)
	if s.cluster != nil {
		key += fmt.Sprint(" ", placesOf(up))
	}
	got, _, err := once(ctx, &s.shared, key, maxAge, s.Timeout, func(ctx context.Context) (listed, error) {
		return turned(ctx, s.turns.heavy, func(ctx context.Context) (listed, error) {
			got, err := s.listOf(ctx, q, up)
			got.Page, err = leave(got.Page, err)
			return got, err
		})
	})
	return got.of(ctx), err
}

func placesOf(sites []*site) []int {
	places := make([]int, len(sites))
	for n, at := range sites {
		places[n] = at.place
	}
	return places
}

// A page of a list that has not found enough goes on for so many pages of the engine, and begins
// none after this time.
const (
	searchPages = 5
	searchTime  = time.Second
)

// listOf reads a page of the list, and goes on within bounds until it is full.
func (s *server) listOf(ctx context.Context, q engine.Query, up []*site) (l listed, err error) {
	began, limit := time.Now(), q.Limit
	for n := 1; ; n++ {
		got, err := s.pageOf(ctx, q, up)
		got.Instances = append(l.Instances, got.Instances...)
		if l = got; err != nil || l.SearchedTo.IsZero() || len(l.lacks) > 0 || n == searchPages || time.Since(began) > searchTime {
			return l, err
		}
		q.After, q.Limit = l.Next, limit-len(l.Instances)
	}
}

// pageOf reads a page of the list of the only engine, or of the places that answer.
func (s *server) pageOf(ctx context.Context, q engine.Query, up []*site) (l listed, err error) {
	if s.cluster == nil {
		l.Page, err = s.sites[0].engine.List(ctx, q)
		return l, err
	}
	l.Page, err = s.cluster.ListAt(ctx, q, placesOf(up))
	if l.lacks = cluster.PlaceErrors(err); len(l.lacks) > 0 && len(l.lacks) < len(up) {
		err = nil
	}
	return l, err
}

// total is how many instances a list has.
type total struct {
	Text string    // "": it is not known
	At   time.Time // of the counts that it comes from; zero: now
}

// total says how many instances a filter selects, if the group of a fingerprint or the newest count
// of all instances tells. A lack of either is no fault of the list.
func (s *server) total(ctx context.Context, f engine.Filter) (out total) {
	alike := engine.Filter{Fingerprint: f.Fingerprint, Status: f.Status, Within: f.Within}
	switch {
	case f.Fingerprint != "" && reflect.DeepEqual(f, alike) && (len(f.Status) == 0 || slices.Contains(f.Status, fsm.StatusFailed)):
		all, err := s.failures(ctx, engine.FailuresOptions{Fingerprint: f.Fingerprint, Within: f.Within})
		if err != nil || len(all.Groups) == 0 {
			return out
		}
		more := ""
		if all.Groups[0].AtLeast {
			more = "at least "
		}
		out.Text = more + grouped(all.Groups[0].Count) + " failed alike"
	case countable(f) && len(f.Within.Labels) == 0:
		counts, err := s.countsOf(ctx, totalAge)
		if err != nil || !counts.Complete {
			return out
		}
		var n int64
		for _, c := range counts.Counts {
			if selected(f, c) {
				n += c.Count
			}
		}
		out.At = counts.At
		if out.Text = number(n, "instance", "instances"); len(f.Status) == 1 {
			out.Text = grouped(n) + " " + strings.ReplaceAll(string(f.Status[0]), "_", " ")
		}
	}
	return out
}

// countable reports whether the counts of all instances tell how many a filter selects.
func countable(f engine.Filter) bool {
	return reflect.DeepEqual(f, engine.Filter{Machine: f.Machine, Version: f.Version, Step: f.Step, Queue: f.Queue, Status: f.Status, All: f.All, Within: f.Within})
}

// selected reports whether a countable filter selects the instances of a count.
func selected(f engine.Filter, c engine.Count) bool {
	return (f.Machine == "" || c.Machine == f.Machine) && (f.Version == 0 || c.Version == f.Version) && (f.Step == "" || c.Step == f.Step) &&
		(f.Queue == "" || c.Queue == f.Queue) && (len(f.Status) == 0 || slices.Contains(f.Status, c.Status))
}

// failures are the groups of all places.
func (s *server) failures(ctx context.Context, o engine.FailuresOptions) (engine.Failures, error) {
	all, err := gather(ctx, s, func(ctx context.Context, at *site) (engine.Failures, error) {
		return heavy(ctx, s, at, fmt.Sprintf("failures %#v", o), s.Refresh, func(ctx context.Context) (engine.Failures, error) {
			return at.engine.Failures(ctx, o)
		})
	})
	if err != nil {
		return engine.Failures{}, err
	}
	return mergeFailures(values(all)), nil
}

// tally is how many instances of something are in each status.
type tally struct { //nolint:recvcheck // templates have values, which only add changes
	Of    map[fsm.Status]int64
	Total int64
}

func (t *tally) add(status fsm.Status, n int64) {
	if t.Of == nil {
		t.Of = map[fsm.Status]int64{}
	}
	t.Of[status] += n
	t.Total += n
}

// Live counts those that have not ended.
func (t tally) Live() int64 { return t.Total - t.Of[fsm.StatusDone] - t.Of[fsm.StatusFailed] }

// Get returns the number of a status, for templates.
func (t tally) Get(status string) int64 { return t.Of[fsm.Status(status)] }

// Parts are the statuses that occur.
func (t tally) Parts() (all []chip) {
	x := 0
	for _, status := range statuses {
		if n := t.Of[status]; n > 0 {
			width := max(2, int(n*100/t.Total))
			all = append(all, chip{status, n, x, width})
			x += width
		}
	}
	return all
}
