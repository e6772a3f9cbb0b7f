package dashboard

import (
	"context"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// historyAge is for how long answers about the history are shared: each reads whole days.
const historyAge = time.Minute

// light asks what reads few rows, for all who ask within an interval, and waits for its turn.
func light[T any](ctx context.Context, s *server, key string, ask func(context.Context) (T, error)) (T, error) {
	value, _, err := once(ctx, &s.shared, key, s.Refresh, s.Timeout, func(ctx context.Context) (T, error) { return within(ctx, s.turns.light, ask) })
	return value, err
}

// heavy asks what reads many rows, likewise.
func heavy[T any](ctx context.Context, s *server, key string, maxAge time.Duration, ask func(context.Context) (T, error)) (T, error) {
	value, _, err := once(ctx, &s.shared, key, maxAge, s.Timeout, func(ctx context.Context) (T, error) { return within(ctx, s.turns.heavy, ask) })
	return value, err
}

// forget makes the next reads ask anew: a verb has changed something.
func (s *shared) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.answers)
}

func (s *server) gates(ctx context.Context) ([]engine.GateStatus, error) {
	return light(ctx, s, "gates", s.engine.Admin().Gates)
}

func (s *server) definitions(ctx context.Context) ([]engine.StoredDefinition, error) {
	return light(ctx, s, "definitions", s.engine.Definitions)
}

// counts are those that the access of ctx may see.
func (s *server) counts(ctx context.Context) (engine.Counts, error) {
	all, err := s.engine.Counts(ctx, engine.CountsOptions{MaxAge: max(s.Refresh, 10*time.Second), Timeout: s.Timeout})
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

// instances reads a page of a list, and leaves out what the access of ctx may not see. The rows
// have no states, results and progress: no list shows them, and a page of them may be large to
// keep.
func (s *server) instances(ctx context.Context, q engine.Query) (engine.Page, error) {
	got, err := heavy(ctx, s, fmt.Sprintf("list %#v", q), s.Refresh, func(ctx context.Context) (engine.Page, error) {
		got, err := s.engine.List(ctx, q)
		for n := range got.Instances {
			i := &got.Instances[n]
			i.State, i.Result, i.Progress = nil, nil, nil
		}
		return got, err
	})
	return ownPage(ctx, got, err)
}

// whole reads a page of a list with all documents. Nothing of it is kept.
func (s *server) whole(ctx context.Context, q engine.Query) (engine.Page, error) {
	got, err := within(ctx, s.turns.heavy, func(ctx context.Context) (engine.Page, error) { return s.engine.List(ctx, q) })
	return ownPage(ctx, got, err)
}

// ownPage leaves of a page what the access of ctx may see.
func ownPage(ctx context.Context, got engine.Page, err error) (engine.Page, error) {
	if access := accessOf(ctx); err == nil && !access.everywhere() {
		own := make([]fsm.RawInstance, 0, len(got.Instances))
		for n := range got.Instances {
			if access.sees(got.Instances[n].Queue, got.Instances[n].Machine) {
				own = append(own, got.Instances[n])
			}
		}
		got.Instances = own
	}
	return got, err
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
