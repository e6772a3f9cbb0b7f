package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

// phase is the progress of a visit's user code. After runtime.Goexit has ended a goroutine, another
// continues from it.
type phase int

const (
	fresh      phase = iota
	converting       // an older version's state
	inStep
	failing // the step has failed; the handler has not been called
	inHandler
	spent   // the handler has failed, too
	decided // there is an outcome
)

// decide runs the step and, if that fails, the handler. It returns nil if there is no outcome,
// since the engine cancelled the step or does not begin any.
func (x *execution) decide() *step.Commit {
	var out *step.Commit
	if x.phase == converting { // continued after runtime.Goexit
		x.f.group.without(x.f)
		x.unconverted(goexit())
		return nil
	}
	if x.phase == inStep { // continued after runtime.Goexit
		x.phase, x.failed = failing, goexit()
	}
	if x.phase == inHandler {
		x.phase, x.failed = spent, x.failed.and("; its handler: ", goexit())
	}
	if x.phase == fresh {
		var begins bool
		if out, begins = x.begins(); !begins {
			x.f.group.without(x.f)
			return out
		}
		began := x.since()
		x.called = began
		x.phase = inStep
		out, x.failed = x.guarded(x.step)
		x.took = x.since() - began
		if x.failed == nil {
			return x.inTime(out)
		}
		if x.hindered != nil {
			return x.stopped()
		}
		x.phase = failing
	}
	if x.phase == failing && x.failed.again {
		// A middleware, or the function of an undone transaction, has asked for another run: that is no
		// failure. What a step itself asks for is an outcome already.
		out, x.failed = &step.Commit{Kind: step.Again, Delay: x.failed.after}, nil
		return x.inTime(out)
	}
	if x.f.lost() != nil {
		return nil
	}
	if x.phase == failing && x.failed.turned && !x.f.expired() {
		out = x.throttled(x.failed)
		x.failed = nil
		return x.inTime(out)
	}
	if x.phase == failing && !x.f.expired() {
		x.phase = inHandler
		var failed *failure
		out, failed = x.guarded(func() (*step.Commit, error) { return x.m.OnError(x.extract(x.f.ctx), x.f.claim, x.failed.err) })
		if failed == nil {
			return x.inTime(out)
		}
		if x.f.lost() != nil {
			return nil
		}
		x.phase, x.failed = spent, x.failed.and("; its handler: ", failed)
	}
	if x.f.expired() {
		return x.overdue(x.failed)
	}
	return &step.Commit{Kind: step.Fail, Err: step.SanitizeError(x.failed.safe), Failure: string(fsm.FailureError)}
}

// stopped returns the outcome of a step that a lock has kept from beginning: none, if it waits, or
// if others of its kind are many, that it gives way.
func (x *execution) stopped() *step.Commit {
	x.failed, x.phase = nil, fresh // nothing of the host's has run
	if x.f.lost() != nil || x.f.expired() {
		x.hindered = nil
		return x.decide()
	}
	if !x.crowd(streamCosts) {
		return nil
	}
	x.f.claim.Children, x.f.claim.Portion = nil, nil
	x.hindered = nil
	return x.givesWay(-x.f.claim.ID, 0)
}

// begins reports whether the step begins. Otherwise it returns the outcome that the visit has
// without it; nil: none.
func (x *execution) begins() (instead *step.Commit, does bool) {
	if x.f.lost() != nil || x.isDraining() { // also between two steps of a kept claim
		return nil, false
	}
	if instead = x.bound(); instead != nil {
		return instead, false
	}
	if instead = x.crowded(); instead != nil {
		return x.inTime(instead), false
	}
	return nil, x.converted()
}

// inTime replaces a Retry or an Again of an instance over its deadline, since the next sweep would
// only fail the instance. It returns other outcomes unchanged.
func (x *execution) inTime(o *step.Commit) *step.Commit {
	if o.Kind != step.Retry && o.Kind != step.Again || !x.f.expired() {
		return o
	}
	if o.Err == "" {
		return x.overdue(nil)
	}
	return x.overdue(known(errors.New(o.Err)))
}

// overdue fails an instance that is over its deadline. Neither the handler nor a retry follows:
// there is no time left for what they would begin.
func (x *execution) overdue(failed *failure) *step.Commit {
	c := x.f.claim
	why := fmt.Errorf("over its deadline of %s at step %s, %s", c.Deadline.UTC().Format("2006-01-02T15:04:05.000Z"), c.Step, fsm.StatusExecuting)
	if failed != nil {
		why = fmt.Errorf("%w: %w", why, failed.safe)
	}
	return &step.Commit{Kind: step.Fail, Err: step.SanitizeError(why), Failure: string(fsm.FailureDeadline)}
}

// bound fails a claim that exceeds a limit before its step runs. A reaper that did not know the
// machine could not do that, and the sweep of deadlines leaves claims alone.
func (x *execution) bound() *step.Commit {
	c := x.f.claim
	if x.f.expired() {
		return x.overdue(nil)
	}
	if m := x.m.CrashLimit; m > 0 && c.Crashes > m {
		return &step.Commit{Kind: step.Fail, Failure: string(fsm.FailureCrashes),
			Err: fmt.Sprintf("lost its worker %d times at step %s: over the crash limit of %d", c.Crashes, c.Step, m)}
	}
	if m := x.m.MaxAttempts; m > 0 && c.Attempt >= m {
		return &step.Commit{Kind: step.Fail, Failure: string(fsm.FailureExhausted),
			Err: fmt.Sprintf("step %s has run %d times, crashes included: over its %d attempts", c.Step, c.Attempt, m)}
	}
	return nil
}

// step runs the step, after loading the values that the claim did not bring. At a batch step, it
// joins the call of its group, the first time; the call has the step's timeout then.
func (x *execution) step() (*step.Commit, error) {
	c := x.f.claim
	s := x.m.Steps[c.Step]       // it is there: see scheduler.withoutStrays
	defer x.f.group.without(x.f) // also if code of the host's ends the goroutine
	ctx := x.extract(x.f.ctx)
	if err := x.load(ctx, &s); err != nil {
		return nil, err
	}
	if c.Skip != "" { // a node whose edges are not met: nothing of the host's runs
		return &step.Commit{Kind: step.Fail, Failure: string(fsm.FailureSkipped), Err: c.Skip}, nil
	}
	if c.Ungrouped != nil {
		return nil, c.Ungrouped
	}
	c.Begun = true
	run, joins := s.Run, x.f.group.awaits(x.f)
	if joins {
		run = func(ctx context.Context, c *step.Claim) (*step.Commit, error) { return x.f.group.join(ctx, x.f, c) }
	}
	if s.Timeout > 0 && !joins {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, fsm.ErrStepTimeout)
		defer cancel()
		defer x.watch(ctx, x.f)()
	}
	if len(x.config.Around) == 0 {
		return run(ctx, c)
	}
	return x.surround(ctx, c, run)
}

// extract adds the values that the host has stored with the instance to a context for the host's
// code. It runs code of the host itself, so it is called within a guard.
func (x *execution) extract(ctx context.Context) context.Context {
	if x.config.Extract == nil || x.f.claim.Trace == nil {
		return ctx
	}
	return x.config.Extract(ctx, x.f.claim.Trace)
}

// mayRunAhead reports whether the claim may be kept after an outcome: after a plain Next, up to the
// bounds of steps and time, and unless there is a reason to stop (§6).
func (x *execution) mayRunAhead(o *step.Commit) bool {
	return o.Kind == step.Next && o.Add == nil && x.f.claim.Unread == nil && x.f.claim.Migrated == 0 && o.Delay == 0 && o.At.IsZero() && x.ahead+1 < x.config.RunAheadSteps && x.since()-x.begun < x.config.RunAheadFor &&
		!x.isDraining() && x.f.ctx.Err() == nil && !x.f.paused.Load() && !x.f.queue.paused.Load() &&
		x.since()+x.config.Lease/4 < time.Duration(x.f.until.Load()) &&
		x.f.queue.urgent.Load() >= int64(x.f.claim.Priority) && x.gates.keeps(x.f.claim, o.Step) && !x.batched(o.Step)
}

// batched reports whether a claim cannot be kept on the way to a step, since this step or that one
// is a batch step: the flights of a group share a slot, and a new group is collected without one.
func (x *execution) batched(to string) bool {
	return x.batches && (x.m.Steps[x.f.claim.Step].Batch != nil || x.m.Steps[to].Batch != nil)
}

// advance moves a kept claim on to the state that its commit has written.
func (x *execution) advance(o *step.Commit) {
	next := x.f.claim
	if next == x.f.beat {
		own := *next
		next = &own
	}
	next.Step, next.State = o.Step, o.State
	next.Visit++
	next.Attempt, next.Crashes = 0, 0
	next.TimedOut, next.Awaited = false, nil
	next.Partial, next.Omitted = false, false
	next.Children, next.Dropped, next.Upstream, next.Portion = nil, nil, nil, nil
	x.f.claim = next
	x.ahead++
	x.phase, x.failed, x.refused, x.final, x.rerun, x.took = fresh, nil, false, false, 0, 0
}

// olderPause is how long a step waits for the workers of older releases to end, which cannot serve
// its outcome.
const olderPause = 5 * time.Second

// refuse handles an outcome that Postgres refused. The first time the handler decides, the second
// time the instance fails with a safe text.
//
// What an older worker that is live cannot serve is no fault: the step runs again a little later,
// as often as it takes.
func (x *execution) refuse(err error) *step.Commit {
	if _, ok := errors.AsType[*step.ReleaseError](err); ok {
		x.trouble("commit an outcome beside an older worker", err)
		return &step.Commit{Kind: step.Again, Delay: olderPause}
	}
	if x.phase = x.before; x.refused || x.phase == spent {
		failed := known(fmt.Errorf("outcome refused by Postgres: %w", err))
		if x.failed != nil {
			failed = x.failed.and("; then: ", failed)
		}
		x.final = true
		return &step.Commit{Kind: step.Fail, Err: step.SanitizeError(failed.safe), Failure: string(fsm.FailureError)}
	}
	x.refused = true
	x.phase, x.failed = failing, known(&fsm.OutcomeError{Field: "commit", Err: err})
	if bad, ok := errors.AsType[*step.AddError](err); ok { // the graph is not as the step took it to be
		x.failed = known(&fsm.OutcomeError{Field: bad.Field, Err: bad.Err})
	}
	return nil
}

// rerunMost bounds how often in a row a visit runs again after its own transaction failed with an
// error that may be absent the next time. A conflict that happens every time, or a function that
// breaks its connection every time, becomes the step's error after some ten seconds. An outage does
// not count, since the transaction does not even begin then.
const rerunMost = 10

// repeat runs the step again, or its handler, whichever decided in the failed transaction. It does
// so under the same claim and as the same attempt, after a pause, unless it has already waited.
func (x *execution) repeat(t turn) {
	if t.innocent {
		x.rerun = min(x.rerun, rerunMost-1)
	}
	if x.rerun++; x.rerun > rerunMost {
		x.fail(known(fmt.Errorf("met %d times in a row, so the step fails", x.rerun)).and(": ", t.failed))
		return
	}
	x.trouble("finish a step's transaction, or give a step what it needs", t.failed.safe)
	if x.phase = fresh; x.before == inHandler {
		x.phase = failing
	}
	if t.kind != turnHeld {
		pace.Sleep(x.f.ctx, pace.Backoff(x.rerun, 10*time.Millisecond, 5*time.Second)) // if it is cut short, decide sees why
	}
}

// fail makes the handler decide next. If the handler itself failed, nothing is left to call.
func (x *execution) fail(failed *failure) {
	if x.before == inHandler {
		x.phase, x.failed = spent, x.failed.and("; its handler: ", failed)
		return
	}
	x.phase, x.failed = failing, failed
}

// end makes decide call no more user code: the flight's context has ended, and decide sees why.
func (x *execution) end() {
	if x.phase = failing; x.before == inStep {
		x.failed = known(context.Cause(x.f.ctx))
	}
}
