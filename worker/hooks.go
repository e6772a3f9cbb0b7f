package worker

import (
	"context"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// Hooks are told what happened, after the fact. Nil ones cost nothing. They run on the engine's goroutines: a slow hook slows the engine,
// a panicking one is logged and forgotten. Hosts know them as engine.Hooks.
type Hooks struct {
	// Step ran: its outcome ("next", "retry", "await", "children", "done", "stop"; "" where it was released) and, where the handler was
	// called, the error that led there.
	Step func(ctx context.Context, info fsm.Info, outcome string, took time.Duration, err error)
	// Pick claimed from a queue: how many rows were wanted and how many came.
	Pick func(ctx context.Context, queue string, wanted, got int, took time.Duration)
	// Saturation of a queue's slots in this process, after each pick.
	Saturation func(ctx context.Context, queue string, running, buffered, slots int)
	// Contended: claims that wait for their partition key's lock, which a stalled process elsewhere still holds.
	Contended func(ctx context.Context, claims int)
	// Commit of a batch of outcomes.
	Commit func(ctx context.Context, outcomes int, took time.Duration)
	// Reap swept expired leases: rows that will run again, rows over their crash limit.
	Reap func(ctx context.Context, released, failed int)
	// Stale: an outcome that came too late and changed nothing.
	Stale func(ctx context.Context, info fsm.Info)
	// Drain ended: claims given back unstarted, and steps that were still running.
	Drain func(ctx context.Context, released, abandoned int)
	// Prune deleted terminal instances past their retention.
	Prune func(ctx context.Context, deleted int)
}

// each calls one hook of every set, and survives it.
func (w *Worker) each(call func(h *Hooks)) {
	for i := range w.c.Hooks {
		func() {
			defer func() {
				if p := recover(); p != nil {
					w.log.Error("a hook panicked", "panic", p)
				}
			}()
			call(&w.c.Hooks[i])
		}()
	}
}
