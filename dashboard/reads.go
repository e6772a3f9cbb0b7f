package dashboard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gendurable/gendurable/engine"
	"github.com/gendurable/gendurable/fsm"
)

// historyAge is for how long answers about the history are shared: each reads whole days.
const historyAge = time.Minute

// light asks what reads few rows, for all who ask within an interval.
func light[T any](ctx context.Context, s *server, key string, ask func(context.Context) (T, error)) (T, error) {
	value, _, err := once(ctx, &s.shared, key, s.Refresh, s.Timeout, ask)
	return value, err
}

// heavy asks what reads many rows, likewise, and waits for its turn.
func heavy[T any](ctx context.Context, s *server, key string, maxAge time.Duration, ask func(context.Context) (T, error)) (T, error) {
	value, _, err := once(ctx, &s.shared, key, maxAge, s.Timeout, func(ctx context.Context) (none T, err error) {
		done, err := s.weigh(ctx)
		if err != nil {
			return none, err
		}
		defer done()
		return ask(ctx)
	})
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
	s.trend.note(all)
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

// instances reads a page of a list, and leaves out what the access of ctx may not see.
func (s *server) instances(ctx context.Context, q engine.Query) (engine.Page, error) {
	got, err := heavy(ctx, s, fmt.Sprintf("list %+v", q), s.Refresh, func(ctx context.Context) (engine.Page, error) {
		return s.engine.List(ctx, q)
	})
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

// trend remembers what was counted, for as long as the process lives and up to an hour.
type trend struct {
	mu      sync.Mutex
	samples []sample
}

type sample struct {
	at     time.Time
	queues map[string]int64 // runnable and executing
}

const maxSamples = 240

// note adds counts, unless they are those that were noted last.
func (t *trend) note(c engine.Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.samples); n > 0 && c.At.Sub(t.samples[n-1].at) < time.Second {
		return
	}
	one := sample{c.At, map[string]int64{}}
	for _, g := range c.Counts {
		if g.Status == fsm.StatusRunnable || g.Status == fsm.StatusExecuting {
			one.queues[g.Queue] += g.Count
		}
	}
	t.samples = append(t.samples, one)
	t.samples = slices.DeleteFunc(t.samples, func(old sample) bool { return c.At.Sub(old.at) > time.Hour })
	if len(t.samples) > maxSamples {
		t.samples = slices.Delete(t.samples, 0, len(t.samples)-maxSamples)
	}
}

// line draws how much work a queue had, as points in a box of the given size; "" where there is too
// little to tell.
func (t *trend) line(queue string, width, height float64) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.samples)
	if n < 3 {
		return ""
	}
	first, last := t.samples[0].at, t.samples[n-1].at
	most := int64(1)
	for _, one := range t.samples {
		most = max(most, one.queues[queue])
	}
	var points strings.Builder
	for _, one := range t.samples {
		x := width * float64(one.at.Sub(first)) / float64(max(1, last.Sub(first)))
		fmt.Fprintf(&points, "%.1f,%.1f ", x, 1+(height-2)*(1-float64(one.queues[queue])/float64(most)))
	}
	return points.String()
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
