package work

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/hidden"
	"github.com/gendurable/gendurable/internal/pace"
	"github.com/gendurable/gendurable/worker"
)

// deadlines cancels steps whose lease this process no longer believes in, since their rows may
// belong to another process. The fence decides about their outcomes all the same. It is separate
// from the heartbeat, since a beat that is never answered is the very reason. It also looks for
// zombies, and for claims whose instance passed its deadline before they had a slot.
type deadlines struct {
	*process
	flights *flights
}

func newDeadlines(p *process, flights *flights) *deadlines {
	return &deadlines{process: p, flights: flights}
}

// run looks at the flights until ctx ends.
func (d *deadlines) run(ctx context.Context) {
	for pace.Sleep(ctx, d.config.Heartbeat/4) { // at most a twelfth of the lease, which is less than margin
		now := int64(d.since())
		for _, f := range d.flights.all() {
			if f.until.Load() < now {
				f.cancel(fsm.ErrLeaseLost)
			}
			if f.ctx.Err() != nil || f.told.Load() != 0 {
				d.overtime(f, now)
			}
		}
	}
}

// overtime handles a flight whose context has ended.
func (d *deadlines) overtime(f *flight, now int64) {
	switch told := f.told.Load(); {
	case !f.started.Load():
		if f.expired() {
			f.queue.overdue.Store(true)
			f.queue.nudge()
		}
	case !f.inside.Load() || told == counted:
	case told == 0:
		f.told.CompareAndSwap(0, now)
	case now-told >= int64(zombieAfter) && f.told.CompareAndSwap(told, counted):
		d.zombie(f)
	}
}

const (
	// zombieAfter is how long the user's code may take to notice that its context has ended.
	zombieAfter = 10 * time.Second
	counted     = -1
)

// zombie reports code that goes on although its context has ended. Nothing can stop such code. It
// keeps its slot, and its claim as long as this process has it, and the fence decides about its
// outcome.
func (d *deadlines) zombie(f *flight) {
	info, cause := hidden.InfoOf(f.beat), context.Cause(f.ctx)
	if cause == nil {
		cause = fsm.ErrStepTimeout
	}
	d.log.Warn("a step goes on though its context has ended: it does not listen", slog.Int64("instance", f.beat.ID),
		slog.String("machine", f.beat.Machine), slog.Any("cause", cause))
	tell(d.base, d.process, d.hooks.zombie, worker.ZombieEvent{Instance: info, Cause: cause})
}

// watch notes when the context of a step with its own timeout ends. The caller ends the watch by
// release.
func (p *process) watch(ctx context.Context, f *flight) (release func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		f.told.CompareAndSwap(0, int64(p.since()))
	})
	return func() {
		if !stop() {
			<-over // otherwise it might note the end of the flight's next step
		}
	}
}
