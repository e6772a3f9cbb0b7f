package model_test

import (
	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/step"
)

// enter inserts instances of one queue as claimed, as the process of a worker does that has slots
// for them. It is an insert, and a claim of exactly what this has inserted. It reports false, and
// does nothing, if the process knows of a gate.
func (p *pair) enter(w *worker, specs ...model.Spec) ([]claim, bool) {
	reals := make([]*step.Spec, len(specs))
	for n := range specs {
		specs[n].UID = p.uid()
		reals[n] = realSpec(&specs[n])
	}
	i := p.Insertion(reals)
	if !i.Claim(w.name, lease) {
		return nil, false
	}
	p.logf("enter(%s, %s)", w.name, brief(specs))
	ctx, cancel := p.context()
	defer cancel()
	got, err := i.Try(ctx)
	require.NoError(p, err)
	fresh := 0
	for n, want := range p.model.Insert(specs) {
		require.Equal(p, want.Duplicate, got[n].Duplicate, "insert %d", n)
		require.NotEqual(p, got[n].Duplicate, got[n].Claimed, "insert %d", n)
		p.met(want.ID, got[n].ID)
		if !want.Duplicate {
			fresh++
		}
	}
	require.Len(p, i.Claims(), fresh)
	var claims []claim
	before := p.newest
	for _, c := range i.Claims() {
		require.Greater(p, c.Token, before, "claim tokens grow")
		require.Equal(p, c.Token, c.FencingToken)
		p.newest = max(p.newest, c.Token)
		claims = append(claims, p.claimed(w, specs[0].Queue, c, false))
	}
	return claims, true
}

// enters inserts what a worker can claim at once.
func (h *history) enters() bool {
	if h.gated || !h.room() {
		return false
	}
	a, queue := one(h, h.actors, "worker"), one(h, queues, "queue")
	specs := h.specs(3)
	for n := range specs {
		x := &specs[n]
		x.Queue, x.PartitionKey, x.Delay, x.At, x.Machine = queue, "", 0, model.Never, one(h, a.machines, "machine")
	}
	claims, ok := h.enter(&a.worker, specs...)
	a.held = append(a.held, claims...)
	return ok
}
