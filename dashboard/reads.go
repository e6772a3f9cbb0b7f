package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	all, err := gather(ctx, s, s.countsAt)
	if err != nil {
		return engine.Counts{}, err
	}
	return mergeCounts(values(all)), nil
}

func (s *server) countsAt(ctx context.Context, at *site) (engine.Counts, error) {
	all, err := at.engine.Counts(ctx, engine.CountsOptions{MaxAge: max(s.Refresh, 10*time.Second), Timeout: s.Timeout})
	if err != nil {
		return all, err
	}
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

// listOf reads a page of the list of the only engine, or of the places that answer.
func (s *server) listOf(ctx context.Context, q engine.Query, up []*site) (l listed, err error) {
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
