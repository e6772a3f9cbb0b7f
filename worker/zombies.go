package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// overtime deals with a flight whose context has ended.
func (w *Worker) overtime(f *flight, now int64) {
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
		w.zombie(f)
	}
}

const (
	// zombieAfter is how long the user's code may take to notice that its context has ended.
	zombieAfter = 10 * time.Second
	counted     = -1
)

// watch notes when the context of a step with a timeout of its own has ended, until release is called.
func (w *Worker) watch(ctx context.Context, f *flight) (release func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		f.told.CompareAndSwap(0, int64(w.since()))
	})
	return func() {
		if !stop() {
			<-over // else it might note it of the flight's next step
		}
	}
}

// zombie tells of code that goes on though its context has ended. Nothing can stop it: it keeps its slot, and its claim as long as this
// process has it, and the fence decides about what it returns.
func (w *Worker) zombie(f *flight) {
	info, cause := fsm.InfoOf(f.beat), context.Cause(f.ctx)
	if cause == nil {
		cause = fsm.ErrStepTimeout
	}
	w.log.Warn("a step goes on though its context has ended: it does not listen", slog.Int64("instance", f.beat.ID),
		slog.String("machine", f.beat.Machine), slog.Any("cause", cause))
	for _, tell := range w.hooks.zombie {
		w.survive(func() { tell(w.base, info) })
	}
}
