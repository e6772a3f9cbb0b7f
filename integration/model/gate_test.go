package model_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gendurable/gendurable/integration/model"
	"github.com/gendurable/gendurable/internal/store"
)

// seats is the name of the gate of a queue in these histories.
const seats = "seats"

// setGates stores a gate of some kind, changes the one that there is, or drops one. Beside the gate
// of a queue there is one at a time. With two, the model would have to know the lines: who has a
// place for its run may wait for another at the next gate, and who is in line at a gate that is
// full stays there when a narrower one is stored.
func (h *history) setGates() bool {
	if !h.gated {
		return false
	}
	names := []string{"values", "machine", seats, "runs"}
	if gates := h.model.Gates(); len(gates) > 0 && h.rarely("drop") {
		h.dropGate(one(h, gates, "gate").Name)
		return true
	}
	g := model.Gate{Name: one(h, names, "gate"), Places: model.None, Total: model.None}
	rate := func(label string) model.Rate {
		return model.Rate{N: 1, Per: 10 * time.Second, Burst: h.upTo(3, label)}
	}
	for _, other := range h.model.Gates() {
		if g.Name != seats && other.Name != seats && other.Name != g.Name {
			h.dropGate(other.Name)
		}
	}
	switch g.Name {
	case "runs":
		g.Labelled, g.Run, g.Places = true, true, h.upTo(2, "places")
	case seats:
		g.Queue, g.Places = queues[0], h.upTo(3, "places")
	default:
		if g.Labelled = g.Name == "values"; !g.Labelled {
			g.Machine = "b"
		}
		if g.Labelled && h.flip("total") {
			g.Total = h.upTo(3, "total")
		}
		if g.Total == model.None || h.flip("places") {
			g.Places = h.upTo(2, "places") - 1
		}
	}
	if !g.Run && h.flip("rate") {
		g.Rate = rate("burst")
		if h.flip("rate only") {
			g.Places, g.Total = model.None, model.None
		}
	}
	if g.Labelled && !g.Run && h.rarely("rate of all") {
		g.All = rate("burst of all")
	}
	h.setGate(g)
	return true
}

var operator = store.By{Actor: "model"}

func (p *pair) setGate(g model.Gate) {
	p.logf("setGate(%s)", brief(g))
	rate := func(r model.Rate) store.Rate { return store.Rate{N: r.N, Per: r.Per, Burst: r.Burst} }
	stored := store.Gate{Name: g.Name, Queue: g.Queue, Machine: g.Machine, Step: g.Step, Places: g.Places, Total: g.Total, Rate: rate(g.Rate),
		TotalRate: rate(g.All), Run: g.Run}
	if g.Labelled {
		stored.Label = "c"
	}
	ctx, cancel := p.context()
	defer cancel()
	_, err := p.SetGate(ctx, stored, operator)
	require.NoError(p, err)
	p.model.SetGate(g)
}

func (p *pair) dropGate(name string) {
	p.logf("dropGate(%s)", name)
	ctx, cancel := p.context()
	defer cancel()
	_, err := p.DropGate(ctx, name, operator)
	require.NoError(p, err)
	p.model.DropGate(name)
}
