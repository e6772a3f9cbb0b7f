package model_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/store"
)

// restart applies an operator's Restart, and compares what runs again.
func (p *pair) restart(id model.ID) {
	p.logf("restart(%d)", id)
	ctx, cancel := p.context()
	defer cancel()
	want, taken := p.model.Restart(id)
	got, err := p.Operate(ctx, []int64{p.ids[id]}, &store.Order{Verb: store.Restart, Mark: uuid.NewString(), Most: 1000})
	if _, occupied := errors.AsType[*store.OccupiedError](err); occupied {
		require.True(p, taken, "no key of restart %d is occupied", id)
		return
	}
	require.NoError(p, err)
	require.False(p, taken, "restart %d takes the key of another", id)
	p.miss(got.Missed)
	var rows []int64
	for _, c := range got.Changed {
		rows = append(rows, c.ID)
	}
	require.Equal(p, want, p.ofRows(rows), "restart of instance %d", id)
	p.logf("  restarted %v", want)
}

// restarts restarts what a Restart is meant for, or anything. It would wait for another session.
func (h *history) restarts() bool {
	if h.held() {
		return false
	}
	id := h.someID(func(i *model.Instance) bool {
		p := h.model.Get(i.Parent)
		return i.Status == model.Failed && (i.Pending > 0 || p != nil && p.Round == i.ParentRound && !p.Status.Terminal())
	})
	if id == 0 || h.rarely("a parent") {
		id = h.someID(func(i *model.Instance) bool {
			return i.Status == model.AwaitingChildren || i.Status == model.Failed && i.Round != 0
		})
	}
	if id == 0 || h.upTo(10, "any") == 1 {
		id = h.someID(func(*model.Instance) bool { return true })
	}
	if id == 0 {
		return false
	}
	h.restart(id)
	return true
}

// skip is what a worker makes of a node that is to be skipped.
func skip() model.Outcome {
	return model.Outcome{Kind: model.Fail, Err: "skipped", Failure: "skipped", At: model.Never}
}

// TestGraphs runs short histories of little but one graph, of which the others have few: nodes end,
// some of them after children, and failed ones are restarted.
func TestGraphs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	count, done := map[string]int{}, 0
	random(t, func(t *rapid.T) {
		h := &history{pair: newPair(t, w), t: t, count: count, actors: []*actor{{worker: everyone}}}
		root := h.insert(plain("0"))[0]
		o := spawn(h.nodes(6)...)
		o.Graph = h.graph(o.Children)
		o.Children[0].Life = one(h, []time.Duration{0, time.Second, 5 * time.Minute}, "life")
		if h.rarely("policy") {
			h.policy(&o, len(o.Children))
		}
		h.commitOne(h.claimOne(&everyone, root), o)
		for a := h.actors[0]; h.done < 30; h.compare() {
			a.held = append(a.held, h.claim(&everyone, one(h, []string{"pay", "pay", "mail"}, "queue"), h.upTo(3, "limit"), narrow)...)
			switch n := h.upTo(10, "operation"); {
			case n <= 5 && len(a.held) > 0:
				for _, c := range distinct(h.take(a)) {
					d := decision{claim: c, outcome: h.ofNode(&c, root)}
					if on := h.commit(h.flip("slow"), d); d.outcome.Add != nil && len(on) > 0 {
						h.commitOne(on[0], stop())
					}
				}
			case n == 6:
				h.crashes()
				h.advance(lease + time.Second)
				h.reap(&everyone, 2)
				h.expire(2)
				h.timeOut(2)
				h.cancelRest(1000)
				h.skips(2)
			case n == 7 && h.rarely("pause"):
				h.pauses()
			case n == 7:
				if id := h.someID(func(i *model.Instance) bool { return !i.Status.Terminal() && (i.ID != root || h.rarely("the root")) }); id != 0 {
					h.cancel(id)
				}
			case n == 8 && h.rarely("redrive"):
				h.redrive(root)
			case n > 6:
				if before := h.model.Get(root).Pending; h.restarts() && h.model.Get(root).Pending > before {
					done++
				}
			}
		}
		h.compareTables()
	})
	if !t.Failed() {
		require.Positive(t, done)
	}
}

// nodes returns specs of some nodes, at least two.
func (h *history) nodes(most int) []model.Spec {
	specs := make([]model.Spec, 1+h.upTo(most-1, "nodes"))
	for n := range specs {
		if specs[n] = plain(h.payload()); h.rarely("another queue") {
			specs[n].Queue = "mail"
		}
	}
	return specs
}

// ofNode ends a node or the root, mostly: half of them fail.
func (h *history) ofNode(c *claim, root model.ID) model.Outcome {
	switch {
	case c.real.Skip != "":
		return skip()
	case c.ID == root && h.rarely("again"):
		o := outcome(model.Rejoin, "0")
		h.policy(&o, 3)
		return o
	case h.rarely("children") && c.Depth < 2 && h.room():
		o := spawn(h.nodes(3)...)
		if h.flip("graph") {
			o.Graph = h.graph(o.Children)
		}
		return o
	case c.Node != "" && h.flip("adds") && h.room():
		return h.adds(c)
	case h.rarely("on"):
		return next("1")
	}
	return one(h, []model.Outcome{{Kind: model.Finish, Result: "1", At: model.Never}, stop()}, "end")
}
