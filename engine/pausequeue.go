package engine

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/gendurable/gendurable/ent"
	"github.com/gendurable/gendurable/fsm"
)

// A *[VerbError] of PauseQueue and ResumeQueue names the verb by one of these.
const (
	VerbPauseQueue  Verb = "pause_queue"
	VerbResumeQueue Verb = "resume_queue"
)

// PausedQueue is a queue from which no process claims.
type PausedQueue struct {
	Queue string    `json:"queue"`
	Since time.Time `json:"since"`
}

// PauseQueue keeps every process from claiming from a queue until ResumeQueue, across restarts. It
// reports whether the queue was not paused before. Each process obeys with its next poll, within a
// second. Steps that are running go on; claims that have not begun go back untouched. Inserts and
// signals are accepted; timeouts and joins wake instances, which then wait. The options are
// [Actor] and [Reason].
//
// Errors: a *[VerbError]; ErrUnknown where the COMMIT got no answer: call again.
func (a *Admin) PauseQueue(ctx context.Context, queue string, options ...VerbOption) (changed bool, err error) {
	return a.pauseQueue(ctx, VerbPauseQueue, queue, options)
}

// ResumeQueue ends a PauseQueue, and reports whether there was one. Errors: as of PauseQueue.
func (a *Admin) ResumeQueue(ctx context.Context, queue string, options ...VerbOption) (changed bool, err error) {
	return a.pauseQueue(ctx, VerbResumeQueue, queue, options)
}

func (a *Admin) pauseQueue(ctx context.Context, verb Verb, queue string, options []VerbOption) (changed bool, err error) {
	defer a.engine.explain(ctx, toPauseQueues, &err)
	if err := a.ofQueue(verb.method(), queue); err != nil {
		return false, err
	}
	if err := checkName(queue, fsm.MaxNameBytes); err != nil {
		return false, &VerbError{verb, "queue", err}
	}
	by, err := a.by(ctx, verb, options)
	if err != nil {
		return false, err
	}
	t := task{doing: "pause or resume a queue", attrs: []slog.Attr{slog.String("queue", queue)}}
	err = a.engine.patiently(ctx, t, func() error {
		changed, err = a.engine.store.PauseQueue(ctx, queue, verb == VerbPauseQueue, by)
		return err
	})
	return changed, err
}

// PausedQueues lists the queues that are paused, by name. Bounds have to be of queues alone.
func (a *Admin) PausedQueues(ctx context.Context) (paused []PausedQueue, err error) {
	defer a.engine.explain(ctx, toRead("paused_queues"), &err)
	if err := a.byQueue("PausedQueues"); err != nil {
		return nil, err
	}
	var rows []*ent.PausedQueue
	err = a.engine.patiently(ctx, task{doing: "list paused queues"}, func() error {
		rows, err = a.engine.reads.PausedQueues(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	paused = make([]PausedQueue, len(rows))
	for i, q := range rows {
		paused[i] = PausedQueue{Queue: q.ID, Since: q.PausedAt}
	}
	return slices.DeleteFunc(paused, func(q PausedQueue) bool { return !a.sees(q.Queue, "") }), nil
}
