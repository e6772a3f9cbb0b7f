package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// execution is one flight in a slot: it runs the claimed step, has its outcome committed and, where the claim is kept, runs the next one.
// It is a goroutine's only while it runs user code: an outcome on its way is the committer's, whose answer goes on with it.
type execution struct {
	w *Worker
	f *flight
	m *step.Machine

	begun time.Duration // of the flight
	steps int           // run ahead so far

	// Of the visit under way.
	phase   phase
	failed  error // what the handler is called for
	refused bool  // Postgres has refused an outcome of this visit once already
	last    bool  // and what is under way now is the last resort: to fail with a safe text
	took    time.Duration
	rerun   int // how often it ran again since its own transaction met what passes

	sent   pending      // the outcome under way
	before phase        // in which it was decided
	answer *commitReply // what became of it, not yet considered
}

// phase is where in a visit the user's code is, so that a goroutine that runtime.Goexit ended can be continued by another.
type phase int

const (
	fresh phase = iota
	inStep
	failing // the step has failed; the handler has not been called
	inHandler
	spent   // the handler has failed, too
	decided // there is an outcome
)

// machineKey is the identity of a machine.
type machineKey struct {
	name    string
	version int
}

// fly takes a flight into the air: its slot is free again when it has ended.
func (w *Worker) fly(f *flight) {
	w.runners.add(&execution{w: w, f: f, m: w.machines[machineKey{f.claim.Machine, f.claim.Version}], begun: w.since()})
}

// fly runs what there is to run: until the flight has ended, or until an outcome is on its way to the database. If user code ends the
// goroutine by runtime.Goexit, another takes over: to the machine that is a step that failed (T73).
func (x *execution) fly() {
	returned := false
	defer func() {
		if !returned {
			x.w.runners.add(x)
		}
	}()
	over := x.run()
	returned = true
	if over {
		x.land()
	}
}

// land ends the flight and frees its slot.
func (x *execution) land() {
	x.w.land(x.f)
	select {
	case x.f.queue.freed <- struct{}{}: // there is room for as many as there are slots
	default:
		select {
		case x.f.queue.freed <- struct{}{}:
		case <-x.w.draining: // its scheduler is gone
		}
	}
	x.w.flying.Done()
}

// run reports whether the flight is over. If it is not, the execution is somebody else's already.
func (x *execution) run() (over bool) {
	if x.phase == fresh && x.steps == 0 && x.w.since() > time.Duration(x.f.until.Load()) {
		// It waited in the buffer until the lease was doubtful: give it back, if it is still ours (T23).
		x.f.cancel(fsm.ErrLeaseLost)
	}
	var outcome *step.Commit
	if r := x.answer; r != nil {
		x.answer = nil
		if outcome, over = x.consider(*r); over {
			return true
		}
	}
	for {
		if outcome == nil {
			outcome = x.decide()
		}
		switch {
		case outcome == nil:
			x.release()
			return true
		case !x.w.flights.current(x.f):
			x.stale()
			return true
		case outcome.Within == nil:
			x.before, x.phase = x.phase, decided
			x.sent = pending{flight: x.f, entry: store.Entry{Claim: x.f.claim, Commit: outcome, Keep: x.mayRunAhead(outcome)}, to: x}
			x.w.commits.commit(&x.sent)
			return false
		}
		x.before = x.phase
		if outcome, over = x.consider(x.transact(outcome)); over {
			return true
		}
	}
}

// answered is the committer's answer. The usual end of a flight needs nobody's code, and no goroutine.
func (x *execution) answered(r commitReply) {
	if r == (commitReply{}) && !x.sent.entry.Keep && len(x.w.hooks.step) == 0 {
		x.land()
		return
	}
	x.answer = &r
	x.w.runners.add(x)
}

// consider decides what follows from what became of an outcome: another one, or the flight is over, or neither: decide anew.
func (x *execution) consider(r commitReply) (outcome *step.Commit, over bool) {
	switch {
	case r.again:
		return nil, false
	case r.refused != nil && x.last:
		x.stuck(r.refused)
		return nil, true
	case r.refused != nil:
		return x.refuse(r.refused), false
	case r.abandoned:
		return nil, true
	case r.stale:
		x.stale()
		return nil, true
	}
	o := x.sent.entry.Commit
	x.report(o.Kind.String())
	if x.sent.entry.Keep {
		x.advance(o)
		return nil, false
	}
	return nil, true
}

// decide runs the step and, if it fails, the handler. Nil: there is no outcome, since the engine cancelled the step or does not begin any.
func (x *execution) decide() *step.Commit {
	var out *step.Commit
	if x.phase == inStep { // continued after runtime.Goexit
		x.phase, x.failed = failing, goexit()
	}
	if x.phase == inHandler {
		x.phase, x.failed = spent, fmt.Errorf("%w; its handler: %w", x.failed, goexit())
	}
	if x.phase == fresh {
		if x.f.lost() != nil || x.w.isDraining() { // also between two steps of a kept claim
			return nil
		}
		if out = x.bound(); out != nil {
			return out
		}
		began := x.w.since()
		x.phase = inStep
		out, x.failed = x.guarded(x.step)
		x.took = x.w.since() - began
		if x.failed == nil {
			return x.inTime(out)
		}
		x.phase = failing
	}
	if x.f.lost() != nil {
		return nil
	}
	if x.phase == failing && !x.f.expired() {
		x.phase = inHandler
		var err error
		out, err = x.guarded(func() (*step.Commit, error) { return x.m.OnError(x.extract(x.f.ctx), x.f.claim, x.failed) })
		if err == nil {
			return x.inTime(out)
		}
		if x.f.lost() != nil {
			return nil
		}
		x.phase, x.failed = spent, fmt.Errorf("%w; its handler: %w", x.failed, err)
	}
	if x.f.expired() {
		return x.overdue(x.failed)
	}
	return &step.Commit{Kind: step.Stop, Err: step.SanitizeError(x.failed), Failure: string(fsm.FailureError)}
}

// inTime is what becomes of an outcome: a Retry of an instance over its deadline would only be failed by the next sweep.
func (x *execution) inTime(o *step.Commit) *step.Commit {
	if o.Kind != step.Retry || !x.f.expired() {
		return o
	}
	if o.Err == "" {
		return x.overdue(nil)
	}
	return x.overdue(errors.New(o.Err))
}

// overdue fails an instance that is over its deadline. Neither handler nor retry: there is no time left for what they would begin.
func (x *execution) overdue(failed error) *step.Commit {
	c := x.f.claim
	why := fmt.Errorf("over its deadline of %s at step %s, %s", c.Deadline.UTC().Format("2006-01-02T15:04:05.000Z"), c.Step, fsm.StatusExecuting)
	if failed != nil {
		why = fmt.Errorf("%w: %w", why, failed)
	}
	return &step.Commit{Kind: step.Stop, Err: step.SanitizeError(why), Failure: string(fsm.FailureDeadline)}
}

// bound fails a claim that is over a limit before its step runs: a reaper that did not know the machine could not, and the sweep of deadlines
// leaves claims alone.
func (x *execution) bound() *step.Commit {
	c := x.f.claim
	if x.f.expired() {
		return x.overdue(nil)
	}
	if m := x.m.CrashLimit; m > 0 && c.Crashes > m {
		return &step.Commit{Kind: step.Stop, Failure: string(fsm.FailureCrashes),
			Err: fmt.Sprintf("lost its worker %d times at step %s: over the crash limit of %d", c.Crashes, c.Step, m)}
	}
	if m := x.m.MaxAttempts; m > 0 && c.Attempt >= m {
		return &step.Commit{Kind: step.Stop, Failure: string(fsm.FailureExhausted),
			Err: fmt.Sprintf("step %s has run %d times, crashes included: over its %d attempts", c.Step, c.Attempt, m)}
	}
	return nil
}

// step is the step itself, with what it may read of its children.
func (x *execution) step() (*step.Commit, error) {
	c := x.f.claim
	s, ok := x.m.Steps[c.Step]
	if !ok {
		return nil, fmt.Errorf("machine %q version %d has no step %q: instances stand at a step that was renamed or removed", c.Machine, c.Version,
			c.Step)
	}
	ctx := x.extract(x.f.ctx)
	if c.Joins() && c.Children == nil {
		if err := x.loadChildren(ctx); err != nil {
			return nil, err
		}
	}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, fsm.ErrStepTimeout)
		defer cancel()
		defer x.w.watch(ctx, x.f)()
	}
	if len(x.w.c.Around) == 0 {
		return s.Run(ctx, c)
	}
	return x.w.surround(ctx, c, s.Run)
}

// extract adds what the host has stored with the instance to a context for its code. It is the host's code itself, hence guarded.
func (x *execution) extract(ctx context.Context) context.Context {
	if x.w.c.Extract == nil || x.f.claim.Trace == nil {
		return ctx
	}
	return x.w.c.Extract(ctx, x.f.claim.Trace)
}

// loadChildren reads the round that has joined.
func (x *execution) loadChildren(ctx context.Context) error {
	c := x.f.claim
	return x.w.patiently(ctx, "read children", func() (err error) {
		c.Children, err = x.w.db.Children(ctx, c.ID, c.Round)
		return err
	})
}

// patiently repeats what a step reads until ctx ends. A database that is away is waited for: it is not the step's error.
func (w *Worker) patiently(ctx context.Context, doing string, read func() error) error {
	for n := 1; ; n++ {
		err := read()
		if err == nil || ctx.Err() != nil {
			return err
		}
		w.trouble(doing, err)
		if !sleep(ctx, backoff(n, 50*time.Millisecond, 5*time.Second)) {
			return ctx.Err()
		}
	}
}

// mayRunAhead: after a plain Next the claim may be kept, for so many steps and so long, while nothing says otherwise (spec §6).
func (x *execution) mayRunAhead(o *step.Commit) bool {
	w := x.w
	return o.Kind == step.Next && o.Delay == 0 && o.At.IsZero() && x.steps+1 < w.c.RunAheadSteps && w.since()-x.begun < w.c.RunAheadFor &&
		!w.isDraining() && x.f.ctx.Err() == nil && !x.f.paused.Load() && !x.f.queue.paused.Load() &&
		w.since()+w.c.Lease/4 < time.Duration(x.f.until.Load()) &&
		x.f.queue.urgent.Load() >= int64(x.f.claim.Priority)
}

// advance moves a kept claim on to what its commit has written.
func (x *execution) advance(o *step.Commit) {
	next := x.f.claim
	if next == x.f.beat {
		own := *next
		next = &own
	}
	next.Step, next.State = o.Step, o.State
	next.Visit++
	next.Attempt, next.Crashes = 0, 0
	next.Awaits, next.TimedOut, next.Awaited = nil, false, nil
	next.Children, next.Dropped = nil, nil
	x.f.claim = next
	x.steps++
	x.phase, x.failed, x.refused, x.last, x.rerun, x.took = fresh, nil, false, false, 0, 0
}

// refuse answers an outcome that Postgres refused: once the handler decides, the second time the instance fails with a safe text.
func (x *execution) refuse(err error) *step.Commit {
	if x.phase = x.before; x.refused || x.phase == spent {
		err = fmt.Errorf("outcome refused by Postgres: %w", err)
		if x.failed != nil {
			err = fmt.Errorf("%w; then: %w", x.failed, err)
		}
		x.last = true
		return &step.Commit{Kind: step.Stop, Err: step.SanitizeError(err), Failure: string(fsm.FailureError)}
	}
	x.refused = true
	x.phase, x.failed = failing, &fsm.OutcomeError{Field: "commit", Err: err}
	return nil
}

// release gives the claim back as it was: attempt, crashes, visit and state untouched. If it is not ours any more, nothing happens.
func (x *execution) release() {
	x.report("")
	x.w.giveBack(x.w.base, []*flight{x.f}) // as long as it takes: meanwhile its lease is extended
}

// stuck leaves an instance that Postgres does not even let fail to its lease: the reaper's growing delays keep what is tried again in vain
// from becoming a busy loop.
func (x *execution) stuck(err error) {
	c := x.f.claim
	x.w.log.Error("Postgres refuses every outcome of an instance: it is tried again when its lease expires, until it is repaired by hand",
		slog.Int64("instance", c.ID), slog.String("machine", c.Machine), slog.String("step", c.Step), slog.Any("error", err))
}

func (x *execution) stale() {
	c := x.f.claim
	x.w.log.Warn("an outcome came too late and changed nothing", slog.Int64("instance", c.ID), slog.String("machine", c.Machine),
		slog.String("step", c.Step), slog.Int64("visit", c.Visit), slog.Int64("token", c.FencingToken))
	info := fsm.InfoOf(c)
	for _, tell := range x.w.hooks.stale {
		x.w.survive(func() { tell(x.w.base, info) })
	}
}

func (x *execution) report(outcome string) {
	if len(x.w.hooks.step) == 0 {
		return
	}
	info := fsm.InfoOf(x.f.claim)
	for _, tell := range x.w.hooks.step {
		x.w.survive(func() { tell(x.f.ctx, info, outcome, x.took, x.failed) })
	}
}

// guarded is guard, noted for what counts zombies.
func (x *execution) guarded(run func() (*step.Commit, error)) (*step.Commit, error) {
	x.f.told.Store(0)
	x.f.inside.Store(true)
	defer x.f.inside.Store(false)
	return guard(run)
}

// guard runs user code and makes a panic an error. runtime.Goexit passes through it: nothing can stop that, see execution.fly.
func guard(run func() (*step.Commit, error)) (out *step.Commit, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, &fsm.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	out, err = run()
	if err == nil && out == nil {
		err = errors.New("neither an outcome nor an error")
	}
	return out, err
}

func goexit() error { return &fsm.PanicError{Value: fsm.ErrGoexit, Stack: debug.Stack()} }
