package engine

import (
	"context"

	"github.com/gendurable/gendurable/worker"
)

// Hooks are functions that the engine calls after the fact, each with one event. Nil ones cost
// nothing.
type Hooks = worker.Hooks

// The events of Hooks. They may get further fields.
type (
	StepEvent       = worker.StepEvent
	PickEvent       = worker.PickEvent
	SaturationEvent = worker.SaturationEvent
	ContendedEvent  = worker.ContendedEvent
	CommitEvent     = worker.CommitEvent
	ReapEvent       = worker.ReapEvent
	ExpireEvent     = worker.ExpireEvent
	CancelEvent     = worker.CancelEvent
	ZombieEvent     = worker.ZombieEvent
	StaleEvent      = worker.StaleEvent
	DrainEvent      = worker.DrainEvent
	PruneEvent      = worker.PruneEvent
	FireEvent       = worker.FireEvent
)

// cancelled calls the hooks that are told of cancelled instances.
func (e *Engine) cancelled(ctx context.Context, n int) {
	for _, h := range e.config.Hooks {
		if n > 0 && h.Cancel != nil {
			worker.Survive(e.config.Logger, func() { h.Cancel(context.WithoutCancel(ctx), CancelEvent{Cancelled: n}) })
		}
	}
}
