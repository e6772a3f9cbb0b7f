package fsm

import (
	"context"
	"maps"

	"github.com/gendurable/gendurable/internal/step"
)

// TracesFrom returns the traces that engine.Config.Inject has stored: one with the instance whose
// step ctx belongs to, and one with each signal that its visit awaited, oldest first. Signals
// without a trace are left out. Both results are nil outside a step. It is for middleware, which
// links to these traces; a step finds its signals' traces in [Visit.Awaited].
func TracesFrom(ctx context.Context) (instance map[string]string, awaited []map[string]string) {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return nil, nil
	}
	for _, s := range r.claim.Awaited {
		if t := trace(s.Trace); t != nil {
			awaited = append(awaited, t)
		}
	}
	return maps.Clone(r.claim.Trace), awaited
}

// OutcomeFrom returns the kind of the outcome that a step has returned. It is for middleware: call
// it once run has returned, with the context that the middleware was called with. It returns
// [OutcomeNone] before that, after an error, for an outcome that is decided in a separate
// transaction, and in any other context.
func OutcomeFrom(ctx context.Context) OutcomeKind {
	r, ok := ctx.Value(infoKey{}).(*running)
	if !ok {
		return OutcomeNone
	}
	return r.outcome
}

// withExecution is withClaim for middleware, which surrounds a step. It returns a context, and a
// function that records the outcome's kind for [OutcomeFrom].
func withExecution(ctx context.Context, c *step.Claim) (around context.Context, outcome func(kind OutcomeKind)) {
	own := *c
	r := &running{claim: &own, logger: envOf(c.Env).Logger}
	return context.WithValue(ctx, infoKey{}, r), func(kind OutcomeKind) { r.outcome = kind }
}
