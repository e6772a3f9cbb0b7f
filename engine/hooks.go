package engine

import (
	"context"

	"github.com/gendurable/gendurable/internal/survive"
	"github.com/gendurable/gendurable/worker"
)

// Hooks are functions that the engine calls after the fact, each with one event. Nil ones cost
// nothing.
type Hooks = worker.Hooks

// These are the events of [Hooks]. They may get further fields.
type (
	// StepEvent reports a step that ran.
	StepEvent = worker.StepEvent
	// PickEvent reports a claim that was answered.
	PickEvent = worker.PickEvent
	// SaturationEvent reports how busy the slots of a queue are.
	SaturationEvent = worker.SaturationEvent
	// ContendedEvent reports claims that wait for their partition key.
	ContendedEvent = worker.ContendedEvent
	// BatchEvent reports a call of a batch step that has ended.
	BatchEvent = worker.BatchEvent
	// CommitEvent reports a batch of outcomes that was committed.
	CommitEvent = worker.CommitEvent
	// ReapEvent reports a sweep of expired leases.
	ReapEvent = worker.ReapEvent
	// ExpireEvent reports a sweep of instances over their deadline.
	ExpireEvent = worker.ExpireEvent
	// CancelEvent reports instances that an operator cancelled.
	CancelEvent = worker.CancelEvent
	// ZombieEvent reports a step that ignores the end of its context.
	ZombieEvent = worker.ZombieEvent
	// StaleEvent reports an outcome that came too late.
	StaleEvent = worker.StaleEvent
	// DrainEvent reports the end of a stop.
	DrainEvent = worker.DrainEvent
	// PruneEvent reports instances that were deleted past their retention.
	PruneEvent = worker.PruneEvent
	// UnreadEvent reports signals that were deleted unconsumed.
	UnreadEvent = worker.UnreadEvent
	// FireEvent reports a schedule that has moved on.
	FireEvent = worker.FireEvent
)

// cancelled calls the hooks that are told of cancelled instances.
func (e *Engine) cancelled(ctx context.Context, n int) {
	if e.worker != nil && n > 0 {
		e.worker.Freed()
	}
	for _, h := range e.config.Hooks {
		if n > 0 && h.Cancel != nil {
			survive.Hook(e.config.Logger, func() { h.Cancel(context.WithoutCancel(ctx), CancelEvent{Cancelled: n}) })
		}
	}
}
