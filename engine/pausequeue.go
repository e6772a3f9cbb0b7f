package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/fsm"
	"github.com/gendurable/gendurable/internal/store"
)

// The names by which a *[VerbError] of PauseQueue and ResumeQueue goes.
const (
	VerbPauseQueue  Verb = "pause_queue"
	VerbResumeQueue Verb = "resume_queue"
)

// PausedQueue is a queue from which nothing is claimed.
type PausedQueue struct {
	Queue string
	Since time.Time
}

// PauseQueue keeps every process from claiming from a queue until ResumeQueue, across restarts, and reports whether it was not paused
// before. Each obeys with its next poll, a second later at most. Steps that run go on; what was claimed and has not begun goes back
// untouched. Inserts and signals are accepted, timeouts and joins wake, to wait.
//
// Errors: a *[VerbError]; ErrUnknown where the COMMIT got no answer: call again.
func (a *Admin) PauseQueue(ctx context.Context, queue string) (changed bool, err error) {
	return a.pauseQueue(ctx, VerbPauseQueue, queue)
}

// ResumeQueue ends a PauseQueue, and reports whether there was one. Errors: as of PauseQueue.
func (a *Admin) ResumeQueue(ctx context.Context, queue string) (changed bool, err error) {
	return a.pauseQueue(ctx, VerbResumeQueue, queue)
}

func (a *Admin) pauseQueue(ctx context.Context, verb Verb, queue string) (changed bool, err error) {
	defer a.engine.explain(ctx, toPauseQueues, &err)
	if err := checkName(queue, fsm.MaxNameBytes); err != nil {
		return false, &VerbError{verb, "queue", err}
	}
	t := task{doing: "pause or resume a queue", attrs: []slog.Attr{slog.String("queue", queue)}}
	err = a.engine.patiently(ctx, t, func() error {
		changed, err = a.engine.store.PauseQueue(ctx, queue, verb == VerbPauseQueue)
		return err
	})
	return changed, err
}

// PausedQueues lists the queues that are paused, by name.
func (a *Admin) PausedQueues(ctx context.Context) (paused []PausedQueue, err error) {
	defer a.engine.explain(ctx, toRead("paused_queues"), &err)
	var rows []store.PausedQueue
	err = a.engine.patiently(ctx, task{doing: "list paused queues"}, func() error {
		rows, err = a.engine.store.PausedQueues(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	paused = make([]PausedQueue, len(rows))
	for i, q := range rows {
		paused[i] = PausedQueue(q)
	}
	return paused, nil
}
