package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/internal/step"
)

// phase is where in a visit the user's code is, so that a goroutine that runtime.Goexit ended can
// be continued by another.
type phase int

const (
	fresh phase = iota
	inStep
	failing // the step has failed; the handler has not been called
	inHandler
	spent   // the handler has failed, too
	decided // there is an outcome
)

// decide runs the step and, if it fails, the handler. Nil: there is no outcome, since the engine
// cancelled the step or does not begin any.
func (x *execution) decide() *step.Commit {
	var out *step.Commit
	if x.phase == inStep { // continued after runtime.Goexit
		x.phase, x.failed = failing, goexit()
	}
	if x.phase == inHandler {
		x.phase, x.failed = spent, x.failed.and("; its handler: ", goexit())
	}
	if x.phase == fresh {
		if x.f.lost() != nil || x.isDraining() { // also between two steps of a kept claim
			return nil
		}
		if out = x.bound(); out != nil {
			return out
		}
		began := x.since()
		x.phase = inStep
		out, x.failed = x.guarded(x.step)
		x.took = x.since() - began
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
	return &step.Commit{Kind: step.Stop, Err: step.SanitizeError(x.failed.safe), Failure: string(fsm.FailureError)}
}

// inTime is what becomes of an outcome: a Retry of an instance over its deadline would only be
// failed by the next sweep.
func (x *execution) inTime(o *step.Commit) *step.Commit {
	if o.Kind != step.Retry || !x.f.expired() {
		return o
	}
	if o.Err == "" {
		return x.overdue(nil)
	}
	return x.overdue(known(errors.New(o.Err)))
}

// overdue fails an instance that is over its deadline. Neither handler nor retry: there is no time
// left for what they would begin.
func (x *execution) overdue(failed *failure) *step.Commit {
	c := x.f.claim
	why := fmt.Errorf("over its deadline of %s at step %s, %s", c.Deadline.UTC().Format("2006-01-02T15:04:05.000Z"), c.Step, fsm.StatusExecuting)
	if failed != nil {
		why = fmt.Errorf("%w: %w", why, failed.safe)
	}
	return &step.Commit{Kind: step.Stop, Err: step.SanitizeError(why), Failure: string(fsm.FailureDeadline)}
}

// bound fails a claim that is over a limit before its step runs: a reaper that did not know the
// machine could not, and the sweep of deadlines leaves claims alone.
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
	if err := x.load(ctx, &s); err != nil {
		return nil, err
	}
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, fsm.ErrStepTimeout)
		defer cancel()
		defer x.watch(ctx, x.f)()
	}
	if len(x.config.Around) == 0 {
		return s.Run(ctx, c)
	}
	return x.surround(ctx, c, s.Run)
}

// extract adds what the host has stored with the instance to a context for its code. It is the
// host's code itself, hence guarded.
func (x *execution) extract(ctx context.Context) context.Context {
	if x.config.Extract == nil || x.f.claim.Trace == nil {
		return ctx
	}
	return x.config.Extract(ctx, x.f.claim.Trace)
}

// mayRunAhead: after a plain Next the claim may be kept, for so many steps and so long, while
// nothing says otherwise (spec §6).
func (x *execution) mayRunAhead(o *step.Commit) bool {
	return o.Kind == step.Next && o.Delay == 0 && o.At.IsZero() && x.ahead+1 < x.config.RunAheadSteps && x.since()-x.begun < x.config.RunAheadFor &&
		!x.isDraining() && x.f.ctx.Err() == nil && !x.f.paused.Load() && !x.f.queue.paused.Load() &&
		x.since()+x.config.Lease/4 < time.Duration(x.f.until.Load()) &&
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
	next.TimedOut, next.Awaited, next.Partial = false, nil, false
	next.Children, next.Dropped = nil, nil
	x.f.claim = next
	x.ahead++
	x.phase, x.failed, x.refused, x.final, x.rerun, x.took = fresh, nil, false, false, 0, 0
}

// refuse answers an outcome that Postgres refused: once the handler decides, the second time the
// instance fails with a safe text.
func (x *execution) refuse(err error) *step.Commit {
	if x.phase = x.before; x.refused || x.phase == spent {
		failed := known(fmt.Errorf("outcome refused by Postgres: %w", err))
		if x.failed != nil {
			failed = x.failed.and("; then: ", failed)
		}
		x.final = true
		return &step.Commit{Kind: step.Stop, Err: step.SanitizeError(failed.safe), Failure: string(fsm.FailureError)}
	}
	x.refused = true
	x.phase, x.failed = failing, known(&fsm.OutcomeError{Field: "commit", Err: err})
	return nil
}

// rerunMost bounds how often in a row a visit runs again since its own transaction met what may
// pass: a conflict that comes every time, or a function that breaks its connection every time, is
// the step's error after some ten seconds. An outage is not counted: in one the transaction does
// not even begin.
const rerunMost = 10

// repeat runs the step again, or its handler, whichever decided on the transaction that met what
// may pass: under the same claim, with the attempt that it was, and after a pause, unless it has
// waited already.
func (x *execution) repeat(t turn) {
	if t.innocent {
		x.rerun = min(x.rerun, rerunMost-1)
	}
	if x.rerun++; x.rerun > rerunMost {
		x.fail(known(fmt.Errorf("met %d times in a row", x.rerun)).and(": ", t.failed))
		return
	}
	x.trouble("finish a step's transaction", t.failed.safe)
	if x.phase = fresh; x.before == inHandler {
		x.phase = failing
	}
	if t.kind != turnHeld {
		pace.Sleep(x.f.ctx, pace.Backoff(x.rerun, 10*time.Millisecond, 5*time.Second)) // if it was cut short, decide sees why
	}
}

// fail calls the handler next; where it was the handler that failed, nobody is left.
func (x *execution) fail(failed *failure) {
	if x.before == inHandler {
		x.phase, x.failed = spent, x.failed.and("; its handler: ", failed)
		return
	}
	x.phase, x.failed = failing, failed
}

// end calls nobody any more: the flight's context has ended, and decide sees why.
func (x *execution) end() {
	if x.phase = failing; x.before == inStep {
		x.failed = known(context.Cause(x.f.ctx))
	}
}
