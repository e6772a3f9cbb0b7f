package model_test

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/step"
	"github.com/gendurable/gendurable/internal/store"
)

// edit edits an instance, from a copy that may be stale.
func (p *pair) edit(id model.ID, from model.Copy, state string, newKeys bool) {
	p.logf("edit(%d, from %s, new keys %t)", id, brief(from), newKeys)
	p.operate(id, p.model.Edit(id, from, state, newKeys), store.Order{Verb: store.Edits, NewKeys: newKeys, Edits: p.edits(id, from, "", state)})
}

// rewind rewinds an instance to a step, from a copy that may be stale.
func (p *pair) rewind(id model.ID, from model.Copy, to, state string) {
	p.logf("rewind(%d, from %s, to %s)", id, brief(from), to)
	p.operate(id, p.model.Rewind(id, from, to, state), store.Order{Verb: store.Rewind, Edits: p.edits(id, from, to, state)})
}

func (p *pair) edits(id model.ID, from model.Copy, to, state string) map[int64]store.Edit {
	return map[int64]store.Edit{p.ids[id]: {Version: from.Machine.Version, Visit: from.Visit, Old: []byte(from.State), New: []byte(state), To: to}}
}

// migrate brings an instance to the next version of its machine, eagerly.
func (p *pair) migrate(id model.ID, from, to model.Machine, at, state string) {
	p.logf("migrate(%d, %s to %s, at %s)", id, brief(from), brief(to), at)
	ctx, cancel := p.context()
	defer cancel()
	found, err := p.Unmoved(ctx, []int64{p.ids[id]}, from.Name, from.Version)
	require.NoError(p, err)
	moved := 0
	if len(found) == 1 {
		var refused []store.Refused
		moved, refused, err = p.Move(ctx, from.Name, from.Version, to.Version, []store.Moved{{Unmoved: found[0], Step: at, State: []byte(state)}}, store.By{Actor: "model"})
		require.NoError(p, err)
		require.Empty(p, refused)
	}
	require.Equal(p, p.model.Migrate(id, from, to, at, state), moved == 1, "instance %d migrated", id)
}

// setAside gives claims back whose steps their worker does not know, or with a fault.
func (p *pair) setAside(w *worker, fault string, claims ...claim) {
	aside := make([]store.Aside, len(claims))
	for n, c := range claims {
		p.logf("set aside(%s, claim %d of %d, %q)", w.name, c.Token, c.ID, fault)
		aside[n] = store.Aside{Claim: c.real, Fault: fault}
	}
	models, _ := columns(claims)
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.SetAside(ctx, w.name, aside)
	require.NoError(p, err)
	require.Empty(p, got.Refused)
	p.miss(got.Missed)
	p.requireLocked(models, got)
	require.Equal(p, p.model.SetAside(models, fault), got.Claims, "claims set aside")
}

// recall claims strays that stand at steps which a worker knows.
func (p *pair) recall(w *worker, queue string, known []string) (claims []claim) {
	p.logf("recall(%s, %q, %q)", w.name, queue, known)
	var at []store.StepKey
	for _, m := range w.machines {
		for _, s := range known {
			at = append(at, store.StepKey{Machine: m.Name, Version: m.Version, Step: s})
		}
	}
	ctx, cancel := p.context()
	defer cancel()
	params := store.ClaimParams{Queue: queue, Worker: w.name, Machines: w.ids(), Limit: 1000, Window: 1000, Lease: lease, Gated: p.gated}
	params.Seats = slices.ContainsFunc(p.model.Gates(), func(g model.Gate) bool { return g.Name == seats && g.Queue == queue })
	got, err := p.ClaimStrays(ctx, params, at)
	require.NoError(p, err)
	require.Empty(p, got.Refused)
	p.miss(got.Unsettled)
	recalled := p.model.Recall(queue, func(m model.Machine, s string) bool { return w.knows(m) && slices.Contains(known, s) })
	slices.SortFunc(got.Claims, func(a, b *step.Claim) int { return int(a.Token - b.Token) })
	for _, c := range got.Claims {
		require.Contains(p, recalled, p.models[c.ID], "instance %d was not aside", p.models[c.ID])
		require.Greater(p, c.Token, p.newest, "claim tokens grow")
		p.newest = max(p.newest, c.FencingToken)
		one := p.claimed(w, queue, c, false)
		p.compareChildren(&one)
		claims = append(claims, one)
	}
	if p.gated { // some are filed in line, for the next claim
		return claims
	}
	for _, id := range p.left(w, queue) {
		require.NotContains(p, recalled, id, "claimable, but not claimed")
	}
	return claims
}

// copied returns a copy of an instance, which is stale one time in four.
func (h *history) copied(id model.ID) model.Copy {
	from := model.CopyOf(h.model.Get(id))
	if h.rarely("stale") {
		switch one(h, []string{"visit", "state", "version"}, "stale") {
		case "visit":
			from.Visit--
		case "state":
			from.State = h.payload()
		default:
			from.Machine.Version++
		}
	}
	return from
}

// changeable prefers instances that wait for something, or have failed.
func (h *history) changeable() model.ID {
	id := h.someID(func(i *model.Instance) bool {
		return h.free(i) && (i.Status == model.AwaitingSignal || i.Status == model.AwaitingChildren || i.Status == model.Failed || i.Stray)
	})
	if id == 0 || h.rarely("any") {
		id = h.someID(h.free)
	}
	return id
}

func (h *history) edits() bool {
	id := h.changeable()
	if id == 0 {
		return false
	}
	h.edit(id, h.copied(id), h.payload(), h.rarely("new keys"))
	return true
}

func (h *history) rewinds() bool {
	id := h.changeable()
	if id == 0 {
		return false
	}
	h.rewind(id, h.copied(id), one(h, steps, "step"), h.payload())
	return true
}

// migrates brings an instance of machines[0] to the version of machines[1].
func (h *history) migrates() bool {
	id := h.someID(func(i *model.Instance) bool { return i.Machine == machines[0] && !i.Status.Terminal() })
	if id == 0 || h.rarely("any") {
		id = h.someID(func(*model.Instance) bool { return true })
	}
	if id == 0 {
		return false
	}
	h.migrate(id, machines[0], machines[1], one(h, steps, "step"), h.payload())
	return true
}

// setsAside sets claims of a worker aside.
func (h *history) setsAside() bool {
	a := h.busy()
	if a == nil {
		return false
	}
	fault := ""
	if h.rarely("faulty") {
		fault = model.Unconverted + number(h.uid())
	}
	h.setAside(&a.worker, fault, h.takeLocked(a)...)
	return true
}

func (h *history) recalls() bool {
	a, queue := one(h, h.actors, "worker"), one(h, queues, "queue")
	known := steps
	if h.rarely("knows less") {
		known = steps[:1]
	}
	a.held = append(a.held, h.recall(&a.worker, queue, known)...)
	return true
}
