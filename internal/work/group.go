package work

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/worker"
)

// group is a number of flights that stand at the same batch step, and are to share one call.
//
// It changes hands once. While it is collected, the scheduler's loop owns it. When it starts, each
// of its flights gets an execution, like any flight: with its checks, its middleware, its large
// values, its guard. The executions meet in join, which makes the call for all of them, and each
// goes on with its own decision: its handler, its commit, its repetitions. So nothing but the call
// and the slot is shared.
type group struct {
	*process
	machine *step.Machine
	def     *step.Batch
	key     groupKey

	members  []*flight
	began    time.Duration // when the first flight was collected
	until    time.Duration // when it has waited for long enough
	waited   time.Duration // from began to the start
	priority int           // of the most urgent flight
	due      bool          // it only waits for a slot

	holding atomic.Int64 // flights that share the slot

	mu       sync.Mutex
	expected int       // members that have neither joined nor stayed away
	joined   []*joiner // those that wait for the next call
	timer    *time.Timer
}

// joiner is a flight whose step has been called, and that waits for the call of its group.
type joiner struct {
	f       *flight
	ctx     context.Context //nolint:containedctx // of the step of this flight
	claim   *step.Claim
	decided step.Decided
	over    chan struct{} // closed once decided is set
}

// rallyFor is how long the executions of a started group wait for one that is held up on its way to
// the call: by a database that does not answer, or by middleware, which may even let only some of
// them run at a time. Then the call is made without it, and it gets another one.
const rallyFor = 5 * time.Second

// awaits reports whether a flight has yet to join its group. A visit that runs its step once more
// does that alone. The method works on nil, the group of a flight that has none.
func (g *group) awaits(f *flight) bool { return g != nil && !f.met }

// join makes a flight's step part of its group's call, and returns what was decided for it. It
// waits for the call even if ctx ends meanwhile: the code still works for this instance, so neither
// its slot nor its partition key is free.
func (g *group) join(ctx context.Context, f *flight, c *step.Claim) (*step.Commit, error) {
	j := &joiner{f: f, ctx: ctx, claim: c, over: make(chan struct{})}
	f.met = true
	f.inside.Store(false) // whether the user's code ignores the end of its context shows by the call's
	g.mu.Lock()
	g.expected--
	g.joined = append(g.joined, j)
	if g.expected > 0 && g.timer == nil {
		g.timer = time.AfterFunc(rallyFor, g.hurry)
	}
	g.callWhenComplete()
	g.mu.Unlock()
	<-j.over
	f.inside.Store(true)
	return j.decided.Commit, j.decided.Err
}

// without tells the group that one of its flights makes no call, or has made it. It works on nil.
func (g *group) without(f *flight) {
	if !g.awaits(f) {
		return
	}
	f.met = true
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expected--
	g.callWhenComplete()
}

// hurry makes the call for those that have joined.
func (g *group) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = nil
	g.start()
}

// callWhenComplete makes the call if no other is to come. The caller holds mu.
func (g *group) callWhenComplete() {
	if g.expected > 0 {
		return
	}
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	g.start()
}

// start makes the call on a separate goroutine, which the user's code may end. The caller holds mu.
func (g *group) start() {
	if js := g.joined; len(js) > 0 {
		g.joined = nil
		slices.SortFunc(js, func(a, b *joiner) int { return a.f.place - b.f.place })
		go g.call(js)
	}
}

// call calls the step once, and tells each flight what was decided for it.
func (g *group) call(js []*joiner) {
	ctx, end := g.context(js)
	began := g.since()
	failed := goexit().err // unless Run returns
	if len(js) > 1 {
		failed = &fsm.BatchError{Size: len(js), Err: failed}
	}
	defer func() {
		took := g.since() - began
		end()
		for _, j := range js {
			if failed != nil {
				j.decided = step.Decided{Err: failed}
			}
		}
		g.report(js, took)
		for _, j := range js {
			close(j.over)
		}
	}()
	members := make([]step.Member, len(js))
	for i, j := range js {
		members[i] = step.Member{Context: j.ctx, Claim: j.claim}
	}
	decided := g.def.Run(ctx, members)
	for i, j := range js {
		j.decided = decided[i]
	}
	failed = nil
}

// context returns the context of a call. It ends when the contexts of all its flights have ended,
// with the cause of the last one. The step's timeout begins with the call, for each of them.
func (g *group) context(js []*joiner) (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(g.steps)
	ends := []func(){func() { cancel(nil) }}
	left := atomic.Int64{}
	left.Store(int64(len(js)))
	limit := g.machine.Steps[g.key.step].Timeout
	for _, j := range js {
		ends = append(ends, j.limit(limit))
		stop := context.AfterFunc(j.ctx, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(j.ctx))
			}
		})
		ends = append(ends, func() { stop() })
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		for _, j := range js {
			j.f.inside.Store(true)
			j.f.told.CompareAndSwap(0, int64(g.since()))
		}
	})
	return ctx, func() {
		if !stop() {
			<-over // otherwise it might note the end of a flight's next step
		}
		for _, end := range slices.Backward(ends) {
			end()
		}
	}
}

// limit bounds the context of a flight's step.
func (j *joiner) limit(timeout time.Duration) (release func()) {
	if timeout == 0 {
		return func() {}
	}
	j.ctx, release = context.WithTimeoutCause(j.ctx, timeout, fsm.ErrStepTimeout)
	return release
}

// report calls the hooks about a call.
func (g *group) report(js []*joiner, took time.Duration) {
	if len(g.hooks.batch) == 0 {
		return
	}
	e := worker.BatchEvent{Machine: g.key.machine.Name, Version: g.key.machine.Version, Step: g.key.step, Queue: js[0].claim.Queue,
		Size: len(js), Most: g.key.most, Waited: g.waited, Took: took}
	for _, j := range js {
		if j.decided.Err != nil {
			e.Failed++
		}
	}
	tell(g.base, g.process, g.hooks.batch, e)
}

// vacate reports whether a flight that no longer needs its slot was the last one in it.
func (g *group) vacate() bool { return g == nil || g.holding.Add(-1) == 0 }
