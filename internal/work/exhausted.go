package work

import (
	"cmp"
	"slices"

	"github.com/gendurable/gendurable/internal/store"
)

// The instances of a group that waits for others have their places at their gates. So a group may
// wait for instances that cannot come: it has all places itself, or other groups of the queue that
// wait as well have the rest. If anything else has some of the places, an instance that executes or
// a group of another process, these may become free in time, so the group waits for them.

// share is a key, or a gate with all its keys: instances of several groups use its places and its
// rate together.
type share struct {
	key string // the gate's name if all
	all bool
}

// bound is a share in which all instances of a group take part, and what it allows.
type bound struct {
	share
	places int // negative: any number
	rate   store.Rate
	paid   int // instances of this group and of those that began later
}

// boundsOf returns the bounds of all instances that may join a group. near are the gates at its
// step, and places says how many places a key has.
func (of *group) boundsOf(near store.Gates, places func(store.Passage) int) (bounds []bound) {
	first := of.members[0].beat
	for _, p := range near.Whole(first.Queue, of.key.machine.Name, of.key.step, first.Labels, of.def.Alike) {
		bounds = append(bounds, bound{share: share{key: p.Key}, places: places(p), rate: p.Rate})
		if p.Label != "" {
			bounds = append(bounds, bound{share: share{key: p.Name, all: true}, places: p.Total, rate: p.TotalRate})
		}
	}
	return slices.DeleteFunc(bounds, func(b bound) bool { return b.places < 0 && b.rate.N == 0 })
}

// late reports whether a rate lets no other instance begin before the group has waited for long
// enough. Those that it has let begin since then are paid.
func (b *bound) late(of *group) bool {
	return b.rate.N > 0 && float64(b.paid+1) > float64(b.rate.Burst)+float64(of.until-of.began)/float64(b.rate.Per)*float64(b.rate.N)
}

// exhausted returns the waiting groups of a queue that no instance can join in time. If some have
// to go so that others may fill up, the first ones of waiting do.
func (g *gates) exhausted(waiting []*group) (out []*group) {
	all := g.all()
	if len(all) == 0 || len(waiting) == 0 {
		return nil
	}
	type place struct{ queue, machine, step string }
	near := map[place]store.Gates{}
	bounds, held := map[*group][]bound{}, map[share]int{}
	byAge := slices.SortedStableFunc(slices.Values(waiting), func(a, b *group) int { return cmp.Compare(b.began, a.began) })
	for len(byAge) > 0 {
		n := 1
		for n < len(byAge) && byAge[n].began == byAge[0].began {
			n++
		}
		for _, of := range byAge[:n] {
			at := place{of.members[0].beat.Queue, of.key.machine.Name, of.key.step}
			gates, known := near[at]
			if !known {
				gates = all.At(at.queue, at.machine, at.step)
				near[at] = gates
			}
			bounds[of] = of.boundsOf(gates, g.places)
			for _, b := range bounds[of] {
				held[b.share] += len(of.members)
			}
		}
		for _, of := range byAge[:n] {
			for i := range bounds[of] {
				bounds[of][i].paid = held[bounds[of][i].share]
			}
		}
		byAge = byAge[n:]
	}
	for _, of := range waiting {
		if slices.ContainsFunc(bounds[of], func(b bound) bool { return b.places >= 0 && held[b.share] >= b.places || b.late(of) }) {
			out = append(out, of)
			for _, b := range bounds[of] {
				held[b.share] -= len(of.members)
			}
		}
	}
	return out
}

// hasten makes the groups due that no instance can join in time.
func (s *scheduler) hasten() {
	c := &s.collector
	gone := s.gates.exhausted(c.waiting)
	for _, g := range gone {
		c.waiting = slices.DeleteFunc(c.waiting, func(other *group) bool { return other == g })
		c.expire(g)
	}
}
