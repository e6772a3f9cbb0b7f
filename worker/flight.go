package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/step"
)

// flight is a claim from the moment this process has it until its end is durable: buffered, waiting for its key, running or committing.
// All of that is heartbeated.
type flight struct {
	beat  *step.Claim // as claimed: what heartbeats and releases name. Never changed
	queue *scheduler

	claim *step.Claim // as it stands: a kept claim moves on. Owned by the goroutine that runs it

	started atomic.Bool // it has had a slot
	aside   bool        // it waits for a key that is somebody else's for now; the keyring's

	ctx    context.Context //nolint:containedctx // a flight is a call that outlives its caller's stack
	cancel context.CancelCauseFunc

	// until is when this process, by its own clock, stops believing in the lease: nanoseconds of Worker.since. It can only make the
	// worker give up earlier; what counts is the fence.
	until atomic.Int64

	paused atomic.Bool // an operator has paused the instance: no run-ahead

	// Of the user's code that runs, for what counts zombies.
	inside atomic.Bool  // it runs
	told   atomic.Int64 // when its context was seen to have ended, by Worker.since; 0: not yet
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

// bounded ends a flight's context at its instance's deadline, too. What is left until then is the server's word, counted from the moment it
// was heard: the context never ends before the deadline, whatever the clocks say.
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

// flights are all claims of this process, by instance.
type flights struct {
	mu   sync.Mutex
	byID map[int64]*flight
}

// add takes a flight in. A newer claim of an id voids the older one, whatever its token: after a failover tokens repeat, and what we have
// just claimed nobody else can hold (spec §6).
func (fs *flights) add(f *flight) {
	fs.mu.Lock()
	older := fs.byID[f.beat.ID]
	fs.byID[f.beat.ID] = f
	fs.mu.Unlock()
	if older != nil {
		older.cancel(fsm.ErrLeaseLost)
	}
}

// remove forgets a flight, unless a newer one has taken its place.
func (fs *flights) remove(f *flight) {
	fs.mu.Lock()
	if fs.byID[f.beat.ID] == f {
		delete(fs.byID, f.beat.ID)
	}
	fs.mu.Unlock()
}

// current reports whether no newer claim of the instance has come.
func (fs *flights) current(f *flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.byID[f.beat.ID] == f
}

// has reports whether a claim is in flight.
func (fs *flights) has(c *step.Claim) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byID[c.ID]
	return f != nil && f.beat.Token == c.Token
}

// of returns the flights of some instances.
func (fs *flights) of(ids []int64) (out []*flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, id := range ids {
		if f := fs.byID[id]; f != nil {
			out = append(out, f)
		}
	}
	return out
}

func (fs *flights) number() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byID)
}

func (fs *flights) all() []*flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	out := make([]*flight, 0, len(fs.byID))
	for _, f := range fs.byID {
		out = append(out, f)
	}
	return out
}

// launch makes flights of what a claim brought; sent is when the claim was sent, from which the lease counts at the latest.
func (w *Worker) launch(q *scheduler, claims []*step.Claim, sent time.Duration) []*flight {
	out := make([]*flight, len(claims))
	for i, c := range claims {
		c.Env = w.c.Env
		id := c.ID
		c.Inbox = func(ctx context.Context) (signals []step.Signal, err error) {
			err = w.patiently(ctx, "read an inbox", func() (err error) {
				signals, err = w.db.Inbox(ctx, id)
				return err
			})
			return signals, err
		}
		ctx, cancel := context.WithCancelCause(w.steps)
		ctx, cancel = bounded(ctx, cancel, c)
		f := &flight{beat: c, queue: q, claim: c, ctx: ctx, cancel: cancel}
		f.until.Store(int64(sent + w.c.Lease - w.margin()))
		w.flights.add(f)
		out[i] = f
	}
	return out
}

// land ends a flight: its outcome is durable, or its claim is somebody else's business now.
func (w *Worker) land(f *flight) {
	w.keys.release(f)
	w.flights.remove(f)
	f.cancel(nil)
}

// margin is how much earlier than the lease the local deadline ends: time for a cancelled step to notice.
func (w *Worker) margin() time.Duration { return w.c.Lease / 10 }
