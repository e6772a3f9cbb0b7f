package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

const (
	countsMaxAge     = 10 * time.Second
	countsTimeout    = 10 * time.Second
	maxCountsTimeout = 10 * time.Minute
	// countsGrace is how much longer than the server's limit the client waits for a scan's answer.
	countsGrace = 5 * time.Second
)

// CountsOptions say how fresh [Engine.Counts] have to be. The zero value has the usual bounds.
type CountsOptions struct {
	MaxAge  time.Duration // older ones are counted anew; 0: 10 s
	Timeout time.Duration // of that count, 1 ms to 10 min; 0: 10 s
}

// Count is the number of instances of one machine and version, at one step, in one queue and
// status.
type Count struct {
	Machine string     `json:"machine"`
	Version int        `json:"version"`
	Step    string     `json:"step"`
	Queue   string     `json:"queue"`
	Status  fsm.Status `json:"status"`
	Count   int64      `json:"count"`
}

// Counts are the numbers of all instances, in groups.
type Counts struct {
	At       time.Time     `json:"at"`       // when the count began, by this process's clock
	Took     time.Duration `json:"took_ns"`  // how long the count took
	Complete bool          `json:"complete"` // false: a newer count was begun and did not end; these are the numbers of the last that did
	Counts   []Count       `json:"counts"`   // by machine, version, step, queue, status; all callers share it, so do not change it
}

// Counts counts instances by machine, version, step, queue and status. A count reads the whole
// table, so the engine keeps the answer. All callers share it, and at most one count is under way:
// it has the Timeout of the caller who began it, and ends early if no caller waits for it any more.
//
// If a count does not end in time, Counts returns the last complete counts, with Complete false,
// and begins no other until MaxAge has passed.
//
// Errors: a *[QueryError]; ErrCounts if there are no earlier counts to return; the cause of ctx's
// end.
func (e *Engine) Counts(ctx context.Context, o CountsOptions) (c Counts, err error) {
	defer e.explain(ctx, toRead("gen_durable"), &err)
	switch {
	case o.MaxAge < 0:
		return Counts{}, badQuery("MaxAge", "%v is negative", o.MaxAge)
	case o.Timeout != 0 && (o.Timeout < time.Millisecond || o.Timeout > maxCountsTimeout):
		return Counts{}, badQuery("Timeout", "%v, want 1ms to %v", o.Timeout, maxCountsTimeout)
	}
	if o.MaxAge == 0 {
		o.MaxAge = countsMaxAge
	}
	if o.Timeout == 0 {
		o.Timeout = countsTimeout
	}
	return e.counter.counts(ctx, o)
}

// counter keeps the newest counts and the one scan that may be under way.
type counter struct {
	scan func(ctx context.Context, limit time.Duration) ([]store.Count, error)

	mu    sync.Mutex
	last  Counts    // the newest that came to an end
	tried time.Time // when the newest scan that has ended began
	err   error     // of that scan: that it was cut off, else nil
	now   *counting
}

// counting is a scan that is under way.
type counting struct {
	callers int
	cancel  context.CancelFunc
	over    chan struct{} // closed at its end, after which the others do not change
	counts  Counts
	err     error
}

func (c *counter) counts(ctx context.Context, o CountsOptions) (Counts, error) {
	c.mu.Lock()
	if !c.tried.IsZero() && time.Since(c.tried) < o.MaxAge {
		defer c.mu.Unlock()
		return c.answer()
	}
	n := c.now
	if n == nil {
		scanning, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Timeout+countsGrace)
		n = &counting{cancel: cancel, over: make(chan struct{})}
		c.now = n
		go c.count(scanning, n, o.Timeout)
	}
	n.callers++
	c.mu.Unlock()
	select {
	case <-n.over:
		return n.counts, n.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.callers--; n.callers == 0 {
		n.cancel()
		if c.now == n { // whoever comes next begins another
			c.now = nil
		}
	}
	return Counts{}, fmt.Errorf("count instances: %w", context.Cause(ctx))
}

// count is one scan.
func (c *counter) count(ctx context.Context, n *counting, limit time.Duration) {
	defer n.cancel()
	began := time.Now()
	rows, err := c.scan(ctx, limit)
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(n.over)
	if c.now != n { // nobody waits any more
		return
	}
	c.now = nil
	switch {
	case err == nil:
		c.tried, c.err = began, nil
		c.last = Counts{At: began, Took: took, Complete: true, Counts: make([]Count, len(rows))}
		for i, r := range rows {
			c.last.Counts[i] = Count{r.Machine, r.Version, r.Step, r.Queue, fsm.Status(r.Status), r.Count}
		}
	case errors.Is(err, store.ErrCutOff), errors.Is(err, context.DeadlineExceeded):
		c.tried, c.err = began, err
		c.last.Complete = false
	default:
		n.err = err
		return
	}
	n.counts, n.err = c.answer()
}

// answer returns what is kept.
func (c *counter) answer() (Counts, error) {
	if c.err != nil && c.last.At.IsZero() {
		return Counts{}, fmt.Errorf("%w: %w", ErrCounts, c.err)
	}
	return c.last, nil
}
