package work

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// flight is a claim from the moment when this process has it until its end is durable: buffered,
// waiting for its key, running or committing. The heartbeat extends its lease all the while.
type flight struct {
	beat  *step.Claim // as claimed, for heartbeats and releases, which name the claim by it; never changed
	queue *queue

	claim *step.Claim // as of now: a kept claim moves on; owned by the goroutine that runs the flight

	started atomic.Bool // it has had a slot
	where   whereabouts // whether it has a slot; owned like claim
	weight  int64       // bytes that count for it while it is outside of the slots
	resumes *execution  // the execution that continues once the flight has a slot again
	aside   bool        // it waits for a key that somebody else has for now; the keyring owns this field

	ctx    context.Context //nolint:containedctx // a flight is a call that outlives its caller's stack
	cancel context.CancelCauseFunc

	// until is when this process, by its own clock, stops believing in the lease: nanoseconds of
	// process.since. It can only make the worker give up earlier, since the fence decides.
	until atomic.Int64

	paused atomic.Bool // an operator has paused the instance: it does not run ahead
	taken  atomic.Bool // somebody has taken the claim away, as far as is known

	// These fields belong to a flight at a batch step, once its group has started.
	group *group // the others with which it shares a slot; nil: it has one of its own
	place int    // its index among them
	met   bool   // it has joined the call, or makes none; owned like claim

	// These fields describe the running user code, for the detection of zombies.
	inside atomic.Bool  // user code runs
	told   atomic.Int64 // when its context was first seen to have ended, by process.since; 0: not yet
}

// lost returns the reason for which the engine itself ended the flight's context, or nil.
func (f *flight) lost() error {
	cause := context.Cause(f.ctx)
	if errors.Is(cause, fsm.ErrDraining) || errors.Is(cause, fsm.ErrLeaseLost) ||
		errors.Is(cause, fsm.ErrCancelled) {
		return cause
	}
	return nil
}

// expired reports whether the instance is over its deadline.
func (f *flight) expired() bool {
	return f.ctx.Err() != nil && errors.Is(context.Cause(f.ctx), fsm.ErrDeadline)
}

// bounded also ends a flight's context at its instance's deadline. The server computes the time
// left, and the worker counts it from when the answer arrived: so the context never ends before the
// deadline, whatever the clocks say.
func bounded(ctx context.Context, cancel context.CancelCauseFunc, c *step.Claim) (context.Context, context.CancelCauseFunc) {
	if c.Deadline.IsZero() {
		return ctx, cancel
	}
	ctx, stop := context.WithTimeoutCause(ctx, c.Life, fsm.ErrDeadline)
	return ctx, func(cause error) {
		cancel(cause)
		stop()
	}
}
