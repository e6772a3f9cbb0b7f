package worker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// flight is a claim from the moment this process has it until its end is durable: buffered, waiting
// for its key, running or committing. All of that is heartbeated.
type flight struct {
	beat  *step.Claim // as claimed: what heartbeats and releases name. Never changed
	queue *queue

	claim *step.Claim // as it stands: a kept claim moves on. Owned by the goroutine that runs it

	started atomic.Bool // it has had a slot
	left    bool        // it has left its slot: its outcome is held up. Owned as claim is
	resumes *execution  // it is back in line for a slot, and goes on with this
	aside   bool        // it waits for a key that is somebody else's for now; the keyring's

	ctx    context.Context //nolint:containedctx // a flight is a call that outlives its caller's stack
	cancel context.CancelCauseFunc

	// until is when this process, by its own clock, stops believing in the lease: nanoseconds of
	// process.since. It can only make the worker give up earlier; what counts is the fence.
	until atomic.Int64

	paused atomic.Bool // an operator has paused the instance: no run-ahead

	// Of the user's code that runs, for what counts zombies.
	inside atomic.Bool  // it runs
	told   atomic.Int64 // when its context was seen to have ended, by process.since; 0: not yet
}

// lost reports whether the engine itself ended the flight's context, and why.
func (f *flight) lost() error {
	cause := context.Cause(f.ctx)
	if errors.Is(cause, fsm.ErrDraining) || errors.Is(cause, fsm.ErrLeaseLost) || errors.Is(cause, fsm.ErrKeyLost) ||
		errors.Is(cause, fsm.ErrCancelled) {
		return cause
	}
	return nil
}

// expired reports whether the instance is over its deadline.
func (f *flight) expired() bool {
	return f.ctx.Err() != nil && errors.Is(context.Cause(f.ctx), fsm.ErrDeadline)
}

// bounded ends a flight's context at its instance's deadline, too. What is left until then is the
// server's word, counted from the moment it was heard: the context never ends before the deadline,
// whatever the clocks say.
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
