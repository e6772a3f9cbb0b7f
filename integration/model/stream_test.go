package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gendurable/gendurable/integration/model"
)

// stream gives an outcome the policy of a stream.
func (h *history) stream(o *model.Outcome) {
	o.Policy = &model.Policy{Ends: 1, Stream: h.upTo(2, "most")}
	h.bound(o)
}

// portion compares what a stream shows the visit of a claim, as before its step. It reports false
// if the visit joins a whole round. It does not look while another session holds a row that it
// would lock.
func (p *pair) portion(c *claim) bool {
	i := p.model.Get(c.ID)
	if i == nil {
		return true
	}
	for _, k := range append(p.model.Children(i), i) {
		if p.model.Held(k.ID) {
			return true
		}
	}
	ctx, cancel := p.context()
	defer cancel()
	got, err := p.Portion(ctx, c.real, 20*time.Millisecond)
	require.NoError(p, err)
	require.Equal(p, p.model.Holds(&c.Claim), got.Held, "whether claim %d of instance %d holds", c.Token, c.ID)
	require.Equal(p, p.model.Streams(&c.Claim), got.Stream, "whether instance %d streams", c.ID)
	if !got.Stream {
		return !got.Held
	}
	var shown []model.ID
	for _, id := range got.IDs {
		require.Contains(p, p.models, id)
		shown = append(shown, p.models[id])
	}
	p.logf("  shown %v", shown)
	require.True(p, p.model.Show(&c.Claim, shown), "what instance %d is shown at visit %d: %v", c.ID, c.Visit, shown)
	require.Equal(p, p.model.Unshown(c.ID), got.Left, "children of instance %d that no visit was shown", c.ID)
	children, behind, err := p.Children(ctx, got.IDs)
	require.NoError(p, err)
	require.Empty(p, behind)
	require.Len(p, children, len(shown))
	for n, id := range shown {
		require.Equal(p, p.asChild(p.model.Get(id)), children[n])
	}
	return true
}

// looks reads the portion of a claim once more, also of one that may be void.
func (h *history) looks() bool {
	var streams []claim
	for _, a := range h.actors {
		for _, c := range slices.Concat(a.held, a.spent) {
			if c.real.Round < 0 && c.real.Joins() {
				streams = append(streams, c)
			}
		}
	}
	if len(streams) == 0 {
		return false
	}
	h.logf("look again")
	c := one(h, streams, "claim")
	h.portion(&c)
	return true
}

// TestStreams runs short histories of little but streams, of which the others have few.
func TestStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	count, portions := map[string]int{}, 0
	random(t, func(t *rapid.T) {
		h := &history{pair: newPair(t, w), t: t, count: count, actors: []*actor{{worker: everyone}}}
		children := func() (specs []model.Spec) {
			for range 5 {
				s := plain(h.payload())
				s.Life = one(h, []time.Duration{0, 0, time.Minute}, "life")
				specs = append(specs, s)
			}
			return specs
		}
		parent := h.insert(plain("0"))[0]
		o := spawn(children()...)
		h.stream(&o)
		h.commitOne(h.claimOne(&everyone, parent), o)
		for a := h.actors[0]; h.done < 40; h.compare() {
			a.held = append(a.held, h.claim(&everyone, "pay", h.upTo(3, "limit"), narrow)...)
			if i := h.model.Get(parent); i.Round < 0 && i.Status == model.Executing {
				portions++
			}
			switch n := h.upTo(10, "operation"); {
			case n <= 5 && len(a.held) > 0:
				var decisions []decision
				for _, c := range distinct(h.take(a)) {
					decisions = append(decisions, decision{claim: c, outcome: h.streamed(&c, parent)})
				}
				h.commit(h.flip("slow"), decisions...)
			case n == 6:
				h.crashes()
				h.advance(lease + time.Second)
				h.reap(&everyone, 2)
				h.cancelRest(1000)
			case n == 7:
				h.advance(one(h, []time.Duration{time.Second, time.Minute}, "time"))
				h.timeOut(2)
				h.expire(2)
			case n == 8:
				if id := h.someID(func(i *model.Instance) bool { return i.Status == model.Failed }); id != 0 {
					h.redrive(id)
				}
			case n == 9 && h.rarely("cancel"):
				if id := h.someID(func(i *model.Instance) bool { return !i.Status.Terminal() && i.ID != parent }); id != 0 {
					h.cancel(id)
				}
			default:
				h.looks()
			}
		}
		h.compareTables()
	})
	if !t.Failed() {
		require.Positive(t, portions)
	}
}

// streamed ends a child, and lets the parent wait for more, or run again.
func (h *history) streamed(c *claim, parent model.ID) model.Outcome {
	if c.ID != parent {
		return one(h, []model.Outcome{{Kind: model.Finish, Result: "1", At: model.Never}, stop()}, "end")
	}
	if h.rarely("again") {
		return outcome(model.Retry, "0")
	}
	o := outcome(model.Rejoin, "0")
	if h.stream(&o); h.upTo(6, "whole") == 1 {
		o.Policy = &model.Policy{Ends: 1, CancelRest: h.flip("rest")}
	}
	return o
}
