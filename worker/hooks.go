package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/gendurable/gendurable/fsm"
)

// Hooks are told what happened, after the fact. Nil ones cost next to nothing. The engine waits for each: a slow hook slows the engine; one
// that panics, or calls runtime.Goexit, is logged and forgotten. Hosts know them as engine.Hooks.
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

// each calls one hook of every set.
func (w *Worker) each(call func(h *Hooks)) {
	for i := range w.c.Hooks {
		w.survive(func() { call(&w.c.Hooks[i]) })
	}
}

// survive calls a hook, on a goroutine of its own, since runtime.Goexit ends the one that it is called on (T73), and with it a scheduler
// or a lane.
func (w *Worker) survive(hook func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		returned := false
		defer func() {
			if p := recover(); p != nil {
				w.log.Error("a hook panicked", slog.Any("panic", p))
			} else if !returned {
				w.log.Error("a hook called runtime.Goexit")
			}
		}()
		hook()
		returned = true
	}()
	<-over
}
