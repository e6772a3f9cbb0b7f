package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/gendurable/gendurable/engine"
)

// Each place has its own gates: a claim at one place does not see the claims at another. So a gate
// that is set at all places bounds each of them separately. It bounds them together only if all of
// them are at one place, e.g. for a customer whose keys have the customer as their tag.

// SetGate is [engine.Admin.SetGate] at all places, and reports whether it changed any. Each place
// applies the bounds of the gate to its own instances: where these are spread over all places, up
// to the bound times the number of places may run. A place that does not answer within Patience
// keeps its old gate; call SetGate again to set it there.
//
// Errors: the *[engine.VerbError] for bad input; the *[PlaceError] of each place that failed,
// joined.
func (a *Admin) SetGate(ctx context.Context, g engine.Gate, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) { return at.SetGate(ctx, g, options...) })
}

// DropGate is [engine.Admin.DropGate] at all places. It returns the errors of SetGate.
func (a *Admin) DropGate(ctx context.Context, name string, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) { return at.DropGate(ctx, name, options...) })
}

// CloseGate is [engine.Admin.CloseGate] at all places. It returns the errors of SetGate.
func (a *Admin) CloseGate(ctx context.Context, key string, until time.Time, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) {
		return at.CloseGate(ctx, key, until, options...)
	})
}

// OpenGate is [engine.Admin.OpenGate] at all places. It returns the errors of SetGate.
func (a *Admin) OpenGate(ctx context.Context, key string, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) { return at.OpenGate(ctx, key, options...) })
}

// SetGateWeight is [engine.Admin.SetGateWeight] at all places. It returns the errors of SetGate.
func (a *Admin) SetGateWeight(ctx context.Context, key string, weight int, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) {
		return at.SetGateWeight(ctx, key, weight, options...)
	})
}

// SetGatePlaces is [engine.Admin.SetGatePlaces] at all places. It returns the errors of SetGate.
func (a *Admin) SetGatePlaces(ctx context.Context, key string, places int, options ...engine.VerbOption) (changed bool, err error) {
	return a.everywhere(ctx, func(ctx context.Context, at *engine.Admin) (bool, error) {
		return at.SetGatePlaces(ctx, key, places, options...)
	})
}

// PlaceGate is a gate of one place, with what it does there.
type PlaceGate struct {
	Place int `json:"place"`
	engine.GateStatus
}

// Gates lists the gates of all places: place after place, and by name within each. It leaves out
// places that do not answer within Patience, and its error joins a *[PlaceError] for each of them.
func (a *Admin) Gates(ctx context.Context) (gates []PlaceGate, err error) {
	answers, err := each(ctx, a.cluster, a.cluster.places, func(ctx context.Context, p *place) ([]engine.GateStatus, error) {
		return p.engine.Admin().Gates(ctx)
	})
	if err != nil {
		return nil, err
	}
	for _, at := range answers {
		for _, g := range at.value {
			gates = append(gates, PlaceGate{Place: at.place.index, GateStatus: g})
		}
	}
	return gates, errors.Join(failed(answers)...)
}
