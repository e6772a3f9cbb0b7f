package work

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// restMost bounds the children that one transaction cancels, since it also locks their parents.
const restMost = 200

// rest cancels the children that a join does not wait for any more, if it asks for that. The
// process whose commit has woken the parent begins at once. A poll finds children that other
// statements have made due, that a process that died has left, or that were locked.
type rest struct {
	*process
	flights    *flights
	promotions *promotions
}

// restBehind is how long a sweep lets claims of the parents that have been woken go ahead: it locks
// parents, and claims pass by rows that another session has locked.
const restBehind = 10 * time.Millisecond

func (r *rest) run() {
	dueSweep{process: r.process, due: r.restDue, behind: restBehind, pace: sweepPace, sweep: r.sweep, what: "cancel children that no join waits for"}.run()
}

// sweep cancels what it can have at once. Children of what a pass has cancelled become due with
// that, so it goes on until a pass has found nothing.
func (r *rest) sweep(ctx context.Context) (last time.Duration, err error) {
	return r.passes(ctx, func(ctx context.Context, after int64) (ended int, last int64, full bool, err error) {
		done, err := r.cancel(ctx, after)
		return len(done.Cancelled), done.Last, done.Full, err
	})
}

// cancel runs one transaction.
func (r *rest) cancel(ctx context.Context, after int64) (store.Rested, error) {
	done, err := r.db.CancelRest(ctx, uuid.NewString(), after, restMost)
	if err != nil {
		return done, err
	}
	r.reportRefused("cancel a child that no join waits for", done.Refused)
	r.Nudge(done.Queues...)
	r.promotions.add(done.Missed)
	for _, f := range r.flights.of(done.Cancelled) { // in other processes the next heartbeat does
		f.cancel(fsm.ErrCancelled)
	}
	if r.ended(done.Cancelled); len(done.Cancelled) > 0 {
		r.lookSoon() // runs may have given up their places
	}
	return done, nil
}
