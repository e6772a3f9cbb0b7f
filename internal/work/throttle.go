package work

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gendurable/gendurable/internal/step"
)

const (
	// throttleTimeout bounds the statement that closes a gate, since a slot waits for it.
	throttleTimeout = 5 * time.Second
	// throttleSlack is by how much sooner another step may have closed the gate, so that this process
	// does not close it again.
	throttleSlack = 100 * time.Millisecond
	// throttlePause is when a step runs again whose provider does not say when, ± 20 %.
	throttlePause = time.Second
	// throttleMost bounds how many closed gates a process remembers.
	throttleMost = 10_000
)

// throttles closes gates for steps that their provider has turned away (fsm.Throttled). Hundreds of
// steps may be turned away in the same moment, so it remembers what this process has closed: one
// statement serves them all, and those that come while it is under way wait for it.
type throttles struct {
	mu     sync.Mutex
	closed map[string]*closing // by gate
}

// closing is one closing of a gate.
type closing struct {
	until time.Duration // by process.since
	slows bool          // nobody had said for how long
	over  chan struct{} // closed when the statement has come back
	told  time.Duration // when that was; 0: not yet; under the mutex
}

// throttled returns the outcome of a step whose provider has turned it away: the same attempt
// again. It first closes the gate of the step. So those behind it find it closed when the step's
// place becomes free.
func (x *execution) throttled(f *failure) *step.Commit {
	if key := x.gates.behind(x.f.claim); key != "" {
		x.throttles.close(x.f.ctx, x.process, key, x.called, f.after)
	}
	again := f.after
	if again == 0 {
		again = time.Duration(float64(throttlePause) * (0.8 + 0.4*rand.Float64())) //nolint:gosec // jitter
	}
	return &step.Commit{Kind: step.Again, Delay: again, Err: step.SanitizeError(f.safe)}
}

// behind returns the key of the gate that a claim's step is behind, else the key of its queue's
// gate, or "".
func (g *gates) behind(c *step.Claim) string {
	all := g.all()
	if key := all.Of(c.Queue, c.Machine, c.Step, c.Labels, true); key != "" {
		return key
	}
	if own := all.OfQueue(c.Queue); own != nil {
		return own.Name
	}
	return ""
}

// covers reports whether a step that was called at a time, and turned away for a time by now, says
// no more than this closing.
func (c *closing) covers(called, after, now, until time.Duration) bool {
	switch {
	case c.slows && after == 0:
		return c.until > now
	case c.told != 0 && called > c.told:
		return false
	}
	return c.until >= until-throttleSlack || after == 0 && c.until > now
}

// close closes a gate for a time, for a step that was called at a time. With a time of 0 it slows
// the gate down.
//
// Calls that were under way together come back one after the other, and are one piece of news: a
// step does not close what is closed for as long already, nor slow down what was within
// throttlePause/2. But a step that was called after the gate had closed brings other news. It was
// opened since, by hand, or in a test by letting time pass, which this process need not know. A
// failure is only logged: the next step that is turned away tries again.
func (t *throttles) close(ctx context.Context, p *process, key string, called, after time.Duration) {
	t.mu.Lock()
	now := p.since()
	until := now + max(after, throttlePause/2)
	if c := t.closed[key]; c != nil && c.covers(called, after, now, until) {
		t.mu.Unlock()
		select {
		case <-c.over:
		case <-ctx.Done():
		}
		return
	}
	for k, c := range t.closed {
		if len(t.closed) < throttleMost {
			break
		}
		if c.until < now {
			delete(t.closed, k)
		}
	}
	if t.closed == nil {
		t.closed = map[string]*closing{}
	}
	mine := &closing{until: until, slows: after == 0, over: make(chan struct{})}
	t.closed[key] = mine
	t.mu.Unlock()
	defer close(mine.over)
	ctx, cancel := context.WithTimeout(ctx, throttleTimeout)
	defer cancel()
	err := p.db.Throttle(ctx, key, after)
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.told = p.since(); err != nil {
		p.trouble("close a gate", err)
		if t.closed[key] == mine {
			delete(t.closed, key)
		}
	}
}
