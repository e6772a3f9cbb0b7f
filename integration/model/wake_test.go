package model_test

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// wake sends a signal that claims what it wakes, as the process of a worker does that has slots in
// some queues. It is a delivery, and then a claim of the target if that may be claimed by itself.
func (p *pair) wake(w *worker, queues []string, to model.Address, name, payload, dedupKey string) (claims []claim) {
	p.logf("wake(%s, %v, %s, %q, %q)", w.name, queues, brief(to), name, dedupKey)
	ctx, cancel := p.context()
	defer cancel()
	want, wantErr := p.model.Deliver(to, name, payload, dedupKey, inboxCap)
	got, woken, err := p.DeliverClaiming(ctx, store.Address{ID: p.ids[to.ID], Key: to.Key},
		&step.Signal{Name: name, Payload: []byte(payload), DedupKey: dedupKey}, inboxCap,
		&store.Waker{Worker: w.name, Lease: lease, Queues: queues, Machines: w.ids()})
	p.sameDelivery(want, wantErr, got, err)
	if wantErr != nil {
		require.Empty(p, woken.Claims)
		return nil
	}
	i := p.model.Get(want.Target)
	require.Equal(p, want.Woken && w.knows(i.Machine) && slices.Contains(queues, i.Queue) && i.PartitionKey == "" && !i.Paused, got.Claimed)
	require.Equal(p, got.Claimed, len(woken.Claims) == 1)
	for _, c := range woken.Claims {
		require.Greater(p, c.Token, p.newest, "claim tokens grow")
		require.Equal(p, c.Token, c.FencingToken)
		p.newest = max(p.newest, c.Token)
		claims = append(claims, p.claimed(w, i.Queue, c, false))
		p.compareChildren(&claims[0])
	}
	return claims
}

// wakes sends a signal that may claim.
func (h *history) wakes() bool {
	to, name, ok := h.wakeable()
	if !ok || h.gated {
		return false
	}
	a := one(h, h.actors, "worker")
	some := queues
	if h.rarely("one queue") {
		some = []string{one(h, queues, "queue")}
	}
	a.held = append(a.held, h.wake(&a.worker, some, to, name, h.payload(), one(h, dedupKeys, "dedup key"))...)
	return true
}

// wakeable chooses an address that no other session holds, and a signal which it mostly awaits.
func (h *history) wakeable() (to model.Address, name string, ok bool) {
	to, name = h.address(), one(h, names, "name")
	i := h.model.Find(to)
	if i != nil && h.model.Held(i.ID) { // it would wait
		return to, name, false
	}
	if i != nil && len(i.Awaits) > 0 && !h.rarely("not awaited") {
		name = one(h, i.Awaits, "name")
	}
	return to, name, true
}
